"""aiokafka: the asyncio client, which speaks old versions of many requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from interop.clients.client import (
    TIMEOUT_S,
    Message,
    RefusedError,
    SettingsClient,
    Stored,
    ToldCluster,
    ToldSetting,
)

T = TypeVar("T")

_OWN = 1
"""The source of a setting that the topic itself has."""


class AiokafkaClient(SettingsClient):
    name = "aiokafka"
    incremental = False

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
        async def create(admin: Any) -> None:
            await admin.create_partitions({topic: NewPartitions(total)})

        self._administer(create)

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
                number: Any = getattr(failure, "errno", 0)
                raise RefusedError(number, str(failure)) from failure
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
                number: Any = getattr(failure, "errno", 0)
                raise RefusedError(number, str(failure)) from failure
            finally:
                await admin.close()

        return asyncio.run(asyncio.wait_for(whole(), TIMEOUT_S))


def _check(rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        if row[1]:
            raise RefusedError(row[1], str(row))


def _stored(record: Any) -> Stored:
    return Stored(record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp))
