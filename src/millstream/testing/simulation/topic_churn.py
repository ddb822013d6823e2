"""Creates, changes and deletes topics during a simulated run.

In the end, created topics must exist, deleted ones must not, and each topic must have its confirmed settings and
partitions.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.admin_results import ResourceKind
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.failures import OutcomeUnknownError
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.workload import PUT_TIMEOUT_S, HistoryRecorder

NAME = "churn"
_PAUSE_S = 0.3
_PARTITIONS_MAX = 3
_SETTING = "file.delete.delay.ms"
"""A setting without an effect, so that changing it does not affect the run otherwise."""


@dataclass(slots=True)
class TopicChurn:
    """A client that creates topics, adds partitions, writes to them and deletes most of them."""

    client: WireClient
    book: HistoryRecorder
    random: Random
    topics: int
    kept: list[str] = field(default_factory=list)
    """Topics whose creation was confirmed and that no client deletes."""
    deleted: list[str] = field(default_factory=list)
    """Topics whose deletion was confirmed."""
    grown: dict[str, int] = field(default_factory=dict)
    """The confirmed number of partitions per topic."""
    altered: dict[str, str] = field(default_factory=dict)
    """The confirmed value of the setting per topic."""

    async def run(self) -> None:
        async with self.client.producer(ProducerSettings(timeout_s=PUT_TIMEOUT_S)) as producer:
            for number in range(self.topics):
                await self._run_topic(f"topic-{NAME}-{number}", producer)
                await asyncio.sleep(_PAUSE_S * self.random.random())

    async def _run_topic(self, name: str, producer: AsyncProducer) -> None:
        if not await self._create(name):
            return
        for _ in range(self.random.randint(0, 3)):
            await self._put(TopicPartition(name, 0), producer)
        if self.random.random() < 0.5:
            await self._grow(name)
            await self._alter(name)
        if self.random.random() < 0.6:
            await self._delete(name)
        else:
            self.kept.append(name)

    async def problems(self) -> list[str]:
        """Compare the cluster's list of topics with the confirmed changes."""
        listed = {topic.name: len(topic.partitions) for topic in await self.client.list_topics()}
        found = [f"topic {name} was created but does not exist" for name in self.kept if name not in listed]
        found += [f"topic {name} was deleted but exists" for name in self.deleted if name in listed]
        for name, partitions in self.grown.items():
            if name in self.kept and listed.get(name, partitions) != partitions:
                found.append(f"topic {name} was confirmed to have {partitions} partitions but has {listed[name]}")
        for name, value in self.altered.items():
            if name in self.kept and name in listed:
                (setting,) = await self.client.admin.describe_settings(ResourceKind.TOPIC, name, [_SETTING])
                if setting.value != value:
                    found.append(f"topic {name} was confirmed to have {_SETTING}={value} but has {setting.value}")
        return found

    async def _create(self, name: str) -> bool:
        try:
            await self.client.create_topic(name, partitions=self.random.randint(1, _PARTITIONS_MAX))
        except MillstreamError as error:
            self.book.note("create failed", name, error.code.name)
            # If the topic exists, an earlier creation with an unknown outcome has taken place.
            return error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        self.book.note("created", name)
        return True

    async def _grow(self, name: str) -> None:
        total = _PARTITIONS_MAX + self.random.randint(1, _PARTITIONS_MAX)
        try:
            await self.client.admin.create_partitions(name, total)
        except MillstreamError as error:
            self.book.note("growth failed", name, error.code.name)
            return
        self.book.note("grown", name, str(total))
        self.grown[name] = total

    async def _alter(self, name: str) -> None:
        value = str(self.random.randint(1, 1_000_000))
        try:
            await self.client.admin.alter_settings(ResourceKind.TOPIC, name, {_SETTING: value})
        except MillstreamError as error:
            self.book.note("alteration failed", name, error.code.name)
            return
        self.book.note("altered", name, value)
        self.altered[name] = value

    async def _delete(self, name: str) -> None:
        try:
            await self.client.delete_topic(name)
        except MillstreamError as error:
            self.book.note("delete failed", name, error.code.name)
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
        self.book.note("deleted", name)
        self.deleted.append(name)

    async def _put(self, partition: TopicPartition, producer: AsyncProducer) -> None:
        value = f"<{NAME}/{partition}/{self.random.getrandbits(64)}>".encode()
        history = self.book.history
        write = history.ask_write(NAME, partition, [value])
        try:
            stored = await producer.put(partition.topic, value, partition=0)
        except OutcomeUnknownError as error:
            history.abandoned(write, str(error))
        except MillstreamError as error:
            history.refused(write, str(error))
        else:
            history.stored(write, stored.offset)
