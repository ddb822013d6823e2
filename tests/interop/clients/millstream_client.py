"""Drives the Millstream SDK like the other clients."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar, TypeVar

from interop.clients.ability import Ability
from interop.clients.client import (
    EAGER,
    TIMEOUT_S,
    AdminClient,
    GroupView,
    Member,
    Message,
    Received,
    RefusedError,
    Stored,
    Stream,
    ToldSetting,
)
from interop.clients.live import LoopThread, PolledMember
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.admin_results import ResourceKind
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient

T = TypeVar("T")
_NEW_ONLY = "it supports only the consumer protocol (KIP-848)"


class MillstreamClient(AdminClient):
    name = "millstream"
    cannot: ClassVar[Mapping[Ability, str]] = {
        Ability.GROUP: _NEW_ONLY,
        Ability.COOPERATIVE: _NEW_ONLY,
    }

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """Write the messages; the SDK's producer is always idempotent."""

        times = [message.timestamp_ms for message in messages]
        chosen = [time_ms for time_ms in times if time_ms is not None]
        assert len(chosen) in (0, len(messages)), "all messages or none have timestamps"

        async def put(client: WireClient) -> list[int]:
            async with client.producer(ProducerSettings(compression=compression, timeout_s=TIMEOUT_S)) as producer:
                places = await producer.put_many(
                    topic,
                    [message.value for message in messages],
                    keys=[message.key for message in messages],
                    headers=[message.headers for message in messages],
                    timestamps=[time_ms / 1000 for time_ms in chosen] or None,
                    partition=partition,
                )
                return list(places.offsets)

        return self._run(put)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        async def fetch(client: WireClient) -> list[Stored]:
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
        async def ask(client: WireClient) -> tuple[int, int]:
            first = await client.list_offset(topic, partition, BEGINNING)
            following = await client.list_offset(topic, partition, LATEST)
            assert first is not None
            assert following is not None
            return first.offset, following.offset

        return self._run(ask)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask(client: WireClient) -> int | None:
            found = await client.list_offset(topic, partition, timestamp_ms)
            return None if found is None else found.offset

        return self._run(ask)

    def topics(self) -> Mapping[str, int]:
        async def ask(client: WireClient) -> Mapping[str, int]:
            return {topic.name: len(topic.partitions) for topic in await client.list_topics()}

        return self._run(ask)

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        async def create(client: WireClient) -> None:
            await client.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, settings=settings
            )

        self._run(create)

    def delete_topic(self, name: str) -> None:
        async def delete(client: WireClient) -> None:
            await client.delete_topic(name)

        self._run(delete)

    def grow(self, topic: str, total: int) -> None:
        self._run(lambda client: client.admin.create_partitions(topic, total))

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        found = self._run(lambda client: client.admin.describe_settings(ResourceKind.TOPIC, topic))
        return {setting.name: ToldSetting(setting.value, setting.is_own) for setting in found}

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        self._run(lambda client: client.admin.alter_settings(ResourceKind.TOPIC, topic, settings))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return self._run(lambda client: client.admin.delete_records({place: before}))[place]

    def groups(self) -> set[str]:
        return {group.group_id for group in self._run(lambda client: client.groups.list())}

    def describe_group(self, group: str) -> GroupView:
        found = self._run(lambda client: client.groups.describe(group))
        return GroupView(found.state.lower(), len(found.members))

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        found = self._run(lambda client: client.groups.offsets(group))
        return {where.partition: place.offset for where, place in found.items() if where.topic == topic}

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(topic, at): CommittedOffset(offset) for at, offset in offsets.items()}
        self._run(lambda client: client.groups.commit(group, places))

    def delete_group(self, group: str) -> None:
        self._run(lambda client: client.groups.delete(group))

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return MillstreamMember(self.bootstrap, group, topic)

    def stream(self, topic: str) -> Stream:
        return MillstreamStream(self.bootstrap, topic)

    def _run(self, work: Callable[[WireClient], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with WireClient(self.bootstrap) as client:
                return await work(client)

        try:
            return asyncio.run(asyncio.wait_for(whole(), TIMEOUT_S))
        except MillstreamError as failure:
            raise RefusedError(failure.code.number, str(failure)) from failure


class MillstreamMember(PolledMember):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        super().__init__()

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start())

    async def _start(self) -> None:
        self._client = WireClient(self._bootstrap)
        self._consumer = self._client.consumer(self._topic, group=self._group, start="beginning", auto_commit=None)
        await self._consumer.start()

    def _poll(self) -> Sequence[Received]:
        messages = self._runner.run(self._consumer.poll(0.1))
        return [Received(one.partition, one.offset, one.value) for one in messages]

    def _current(self) -> frozenset[int]:
        return frozenset(where.partition for where in self._consumer.assignment)

    def _commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def _close(self) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self._consumer.close()
        self._client.close()


class MillstreamStream(Stream):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._sent: list[Future[None]] = []
        self._thread = LoopThread()
        self._client, self._producer = self._thread.run(self._open(bootstrap))

    def send(self, messages: Sequence[Message]) -> None:
        self._sent.append(self._thread.begin(self._put(messages)))

    def close(self) -> None:
        try:
            for sent in self._sent:
                sent.result(2 * TIMEOUT_S)
        except MillstreamError as failure:
            raise RefusedError(failure.code.number, str(failure)) from failure
        finally:
            self._thread.run(self._close())
            self._thread.close()

    async def _open(self, bootstrap: str) -> tuple[WireClient, AsyncProducer]:
        client = WireClient(bootstrap)
        return client, client.producer(ProducerSettings(timeout_s=2 * TIMEOUT_S))

    async def _put(self, messages: Sequence[Message]) -> None:
        await self._producer.put_many(self._topic, [message.value for message in messages], partition=0)

    async def _close(self) -> None:
        await self._producer.close()
        self._client.close()
