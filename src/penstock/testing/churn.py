"""Topics that come and go while everything else happens: what was created is there, what was deleted stays gone."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.client import AsyncClient
from penstock.sdk.putting import PutError
from penstock.testing.workload import PUT_TIMEOUT_S, Book

NAME = "churn"
_PAUSE_S = 0.3


@dataclass(slots=True)
class Churn:
    """One client that makes topics, writes to them and deletes most of them again."""

    client: AsyncClient
    book: Book
    random: Random
    topics: int
    kept: list[str] = field(default_factory=list)
    """Topics whose creation was confirmed and that nobody asked to delete."""
    deleted: list[str] = field(default_factory=list)
    """Topics whose deletion was confirmed."""

    async def run(self) -> None:
        for number in range(self.topics):
            name = f"topic-{NAME}-{number}"
            if await self._create(name):
                for _ in range(self.random.randint(0, 3)):
                    await self._put(TopicPartition(name, 0))
                if self.random.random() < 0.6:
                    await self._delete(name)
                else:
                    self.kept.append(name)
            await asyncio.sleep(_PAUSE_S * self.random.random())

    async def problems(self) -> list[str]:
        """What the cluster's list of topics says that it should not."""
        listed = {topic.name for topic in await self.client.list_topics()}
        missing = [f"topic {name} was created and is not there" for name in self.kept if name not in listed]
        return missing + [f"topic {name} was deleted and is there" for name in self.deleted if name in listed]

    async def _create(self, name: str) -> bool:
        try:
            await self.client.create_topic(name, partitions=self.random.randint(1, 3))
        except PenstockError as error:
            self.book.note("create failed", name, error.code.name)
            # Refused because it is there: a creation in doubt had taken place after all.
            return error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        self.book.note("created", name)
        return True

    async def _delete(self, name: str) -> None:
        try:
            await self.client.delete_topic(name)
        except PenstockError as error:
            self.book.note("delete failed", name, error.code.name)
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
        self.book.note("deleted", name)
        self.deleted.append(name)

    async def _put(self, partition: TopicPartition) -> None:
        value = f"<{NAME}/{partition}/{self.random.getrandbits(64)}>".encode()
        history = self.book.history
        write = history.ask_write(NAME, partition, [value])
        try:
            places = await self.client.put(partition.topic, [value], partition=0, timeout_s=PUT_TIMEOUT_S)
        except PutError as error:
            if error.outcome_unknown:
                history.abandoned(write, str(error))
            else:
                history.refused(write, str(error))
        except PenstockError as error:
            history.refused(write, str(error))
        else:
            history.stored(write, places[0].offset)
