"""Drives aiokafka, the asyncio client, which uses old versions of many requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from interop.clients.ability import Ability
from interop.clients.client import (
    EAGER,
    TIMEOUT_S,
    GroupView,
    Member,
    Message,
    Received,
    RefusedError,
    SettingsClient,
    Stored,
    Stream,
    ToldCluster,
    ToldSetting,
)
from interop.clients.live import LoopThread, PolledMember

T = TypeVar("T")

_OWN = 1
"""The source of a setting that is set on the topic itself."""


class AiokafkaClient(SettingsClient):
    name = "aiokafka"
    incremental = False
    cannot: ClassVar[Mapping[Ability, str]] = {
        Ability.COOPERATIVE: "it supports only eager rebalancing",
        Ability.NEW_GROUP: "it supports only the classic group protocol",
        Ability.DELETE_GROUP: "its admin client cannot delete groups",
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
        def make() -> Any:
            return AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                acks="all",
                linger_ms=20,
                max_batch_size=1_000_000,
                max_request_size=20_000_000,
            )

        async def send(producer: Any) -> list[int]:
            waiting = [
                await producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            return [int((await future).offset) for future in waiting]

        return self._run(make, send)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        where = TopicPartition(topic, partition)

        async def poll(consumer: Any) -> list[Stored]:
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[Stored] = []
            end_s = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < end_s:
                answer = await consumer.getmany(where, timeout_ms=1000, max_records=count - len(found))
                found += [_stored(record) for record in answer.get(where, ())]
            return found

        return self._run(self._consumer, poll)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)

        async def ask(consumer: Any) -> tuple[int, int]:
            first = (await consumer.beginning_offsets([where]))[where]
            return int(first), int((await consumer.end_offsets([where]))[where])

        return self._run(self._consumer, ask)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = TopicPartition(topic, partition)

        async def ask(consumer: Any) -> int | None:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return None if found is None else int(found.offset)

        return self._run(self._consumer, ask)

    def topics(self) -> Mapping[str, int]:
        async def ask(admin: Any) -> Mapping[str, int]:
            found = await admin.describe_topics()
            return {topic["topic"]: len(topic["partitions"]) for topic in found}

        return self._administer(ask)

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(settings or {}))

        async def create(admin: Any) -> None:
            answer = await admin.create_topics([topic])
            _check(answer.topic_errors)

        self._administer(create)

    def delete_topic(self, name: str) -> None:
        async def delete(admin: Any) -> None:
            answer = await admin.delete_topics([name])
            _check(answer.topic_error_codes)

        self._administer(delete)

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        async def ask(admin: Any) -> Mapping[str, ToldSetting]:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((code, text, _, _, rows),) = answer.resources
            _check([(topic, code, text)])
            return {name: ToldSetting(value, source == _OWN) for name, value, _, source, *_ in rows}

        return self._administer(ask)

    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        async def replace(admin: Any) -> None:
            (answer,) = await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))]
            )
            _check([(row[3], row[0], row[1]) for row in answer.resources])

        self._administer(replace)

    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        raise NotImplementedError("aiokafka only replaces settings as a whole")

    def grow(self, topic: str, total: int) -> None:
        self._administer(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)

        async def delete(admin: Any) -> int:
            answer = await admin.delete_records({place: RecordsToDelete(before_offset=before)})
            return int(answer[place])

        return self._administer(delete)

    def cluster(self) -> ToldCluster:
        async def ask(admin: Any) -> ToldCluster:
            found = await admin.describe_cluster()
            brokers = {row["node_id"]: (row["host"], row["port"]) for row in found["brokers"]}
            return ToldCluster(found["cluster_id"], found["controller_id"], brokers)

        return self._administer(ask)

    def groups(self) -> set[str]:
        async def ask(admin: Any) -> set[str]:
            return {group[0] for group in await admin.list_consumer_groups()}

        return self._administer(ask)

    def describe_group(self, group: str) -> GroupView:
        async def ask(admin: Any) -> GroupView:
            (answer,) = await admin.describe_consumer_groups([group])
            number, _, state, _, _, members, *_ = answer.groups[0]
            if number:
                raise RefusedError(number, group)
            return GroupView(state.lower(), len(members))

        return self._administer(ask)

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        async def ask(admin: Any) -> Mapping[int, int]:
            found = await admin.list_consumer_group_offsets(group)
            return {where.partition: place.offset for where, place in found.items() if where.topic == topic}

        return self._administer(ask)

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit with a self-assigned consumer of the group, because aiokafka's admin client cannot set offsets."""

        def make() -> Any:
            return AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)

        async def commit(consumer: Any) -> None:
            places = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)

        self._run(make, commit)

    def delete_group(self, group: str) -> None:
        raise NotImplementedError(self.cannot[Ability.DELETE_GROUP])

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return AiokafkaMember(self.bootstrap, group, topic)

    def stream(self, topic: str) -> Stream:
        return AiokafkaStream(self.bootstrap, topic)

    def _consumer(self) -> Any:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="none", enable_auto_commit=False, check_crcs=True
        )

    def _run(self, make: Callable[[], Any], work: Callable[[Any], Awaitable[T]]) -> T:
        async def whole() -> T:
            client = make()
            await client.start()
            try:
                return await work(client)
            except KafkaError as failure:
                raise _refused(failure) from failure
            finally:
                await client.stop()

        return asyncio.run(asyncio.wait_for(whole(), TIMEOUT_S))

    def _administer(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def whole() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await work(admin)
            except KafkaError as failure:
                raise _refused(failure) from failure
            finally:
                await admin.close()

        return asyncio.run(asyncio.wait_for(whole(), TIMEOUT_S))


class AiokafkaMember(PolledMember):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "heartbeat_interval_ms": 300,
        }
        self._topic = topic
        super().__init__()

    def _open(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start())

    async def _start(self) -> None:
        self._consumer: Any = AIOKafkaConsumer(self._topic, **self._settings)
        await self._consumer.start()

    def _poll(self) -> Sequence[Received]:
        answer = self._runner.run(self._consumer.getmany(timeout_ms=100))
        return [Received(one.partition, one.offset, one.value) for records in answer.values() for one in records]

    def _current(self) -> frozenset[int]:
        return frozenset(where.partition for where in self._consumer.assignment())

    def _commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def _close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class AiokafkaStream(Stream):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._waiting: list[Any] = []
        self._thread = LoopThread()
        self._producer: Any = self._thread.run(self._open(bootstrap))

    def send(self, messages: Sequence[Message]) -> None:
        self._thread.run(self._send(messages))

    def close(self) -> None:
        try:
            self._thread.run(self._finish())
        finally:
            self._thread.close()

    async def _open(self, bootstrap: str) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        return producer

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            sent = self._producer.send(self._topic, value=message.value, key=message.key, partition=0)
            self._waiting.append(await sent)

    async def _finish(self) -> None:
        try:
            await asyncio.gather(*self._waiting)
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            await self._producer.stop()


def _refused(failure: Any) -> RefusedError:
    return RefusedError(getattr(failure, "errno", 0), str(failure))


def _check(rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        if row[1]:
            raise RefusedError(row[1], str(row))


def _stored(record: Any) -> Stored:
    return Stored(record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp))
