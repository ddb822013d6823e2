"""Our own SDK, as one client among the others."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from interop.clients.client import TIMEOUT_S, AdminClient, Message, RefusedError, Stored
from penstock.model.errors import PenstockError
from penstock.sdk.client import AsyncClient
from penstock.sdk.requests import BEGINNING, LATEST

T = TypeVar("T")


class PenstockClient(AdminClient):
    name = "penstock"

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """The SDK is idempotent in any case."""

        times = [message.timestamp_ms for message in messages]
        chosen = [time_ms for time_ms in times if time_ms is not None]
        assert len(chosen) in (0, len(messages)), "time stamps are given for all messages or for none"

        async def put(client: AsyncClient) -> list[int]:
            places = await client.put(
                topic,
                [message.value for message in messages],
                keys=[message.key for message in messages],
                headers=[message.headers for message in messages],
                timestamps_ms=chosen or None,
                partition=partition,
                compression=compression,
                timeout_s=TIMEOUT_S,
            )
            return [place.offset for place in places]

        return self._run(put)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        async def fetch(client: AsyncClient) -> list[Stored]:
            found: list[Stored] = []
            position = offset
            while len(found) < count:
                fetched = await client.fetch(topic, partition, position)
                position = fetched.next_offset
                found += [
                    Stored(record.offset, Message(record.value, record.key, record.headers, record.timestamp))
                    for record in fetched.records
                ]
            return found[:count]

        return self._run(fetch)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask(client: AsyncClient) -> tuple[int, int]:
            first = await client.list_offset(topic, partition, BEGINNING)
            following = await client.list_offset(topic, partition, LATEST)
            assert first is not None
            assert following is not None
            return first.offset, following.offset

        return self._run(ask)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask(client: AsyncClient) -> int | None:
            found = await client.list_offset(topic, partition, timestamp_ms)
            return None if found is None else found.offset

        return self._run(ask)

    def topics(self) -> Mapping[str, int]:
        async def ask(client: AsyncClient) -> Mapping[str, int]:
            return {topic.name: len(topic.partitions) for topic in await client.list_topics()}

        return self._run(ask)

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        async def create(client: AsyncClient) -> None:
            await client.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, settings=settings
            )

        self._run(create)

    def delete_topic(self, name: str) -> None:
        async def delete(client: AsyncClient) -> None:
            await client.delete_topic(name)

        self._run(delete)

    def _run(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with AsyncClient(self.bootstrap) as client:
                return await work(client)

        try:
            return asyncio.run(asyncio.wait_for(whole(), TIMEOUT_S))
        except PenstockError as failure:
            raise RefusedError(failure.code.number, str(failure)) from failure
