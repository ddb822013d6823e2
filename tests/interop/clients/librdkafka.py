"""confluent-kafka: the Python face of a current librdkafka."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient as LibrdkafkaAdmin
from confluent_kafka.cimpl import NewTopic

from interop.clients.client import TIMEOUT_S, AdminClient, Message, RefusedError, Stored

QUIET: dict[str, Any] = {"log_level": 0}


class ConfluentClient(AdminClient):
    name = "confluent-kafka"

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
            offset = message.offset()
            if error is not None:
                errors.append(error)
            elif offset is not None:
                offsets.append(offset)

        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 20,
            "message.timeout.ms": int(TIMEOUT_S * 1000),
            "message.max.bytes": 20_000_000,
        }
        producer = Producer(settings | QUIET)
        for message in messages:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=partition,
                headers=list(message.headers),
                timestamp=message.timestamp_ms or 0,
                on_delivery=delivered,
            )
        left = producer.flush(TIMEOUT_S)
        for error in errors:
            raise RefusedError(error.code(), error.str())
        assert left == 0, f"{left} messages were not acknowledged in time"
        return offsets

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        consumer = self._consumer()
        found: list[Stored] = []
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            end_s = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < end_s:
                for message in consumer.consume(count - len(found), 1.0):
                    error = message.error()
                    if error is not None:
                        raise RefusedError(error.code(), error.str())
                    found.append(_stored(message))
        finally:
            consumer.close()
        return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            first, following = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
            return first, following
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            offset: int = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)[0].offset
            return offset if offset >= 0 else None
        finally:
            consumer.close()

    def topics(self) -> Mapping[str, int]:
        listed = self._admin().list_topics(timeout=TIMEOUT_S)
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication_factor, config=dict(settings or {})
        )
        admin = self._admin()
        self._settle(admin.create_topics([topic])[name])

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        self._settle(admin.delete_topics([name])[name])

    def _settle(self, future: Any) -> None:
        try:
            future.result(TIMEOUT_S)
        except KafkaException as failure:
            error = failure.args[0]
            raise RefusedError(error.code(), error.str()) from failure

    def _admin(self) -> LibrdkafkaAdmin:
        return LibrdkafkaAdmin(QUIET | {"bootstrap.servers": self.bootstrap})

    def _consumer(self) -> Consumer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        return Consumer(settings | QUIET)


def _stored(message: KafkaMessage) -> Stored:
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    pairs: Any = message.headers() or ()
    headers = tuple((name, content) for name, content in pairs)
    return Stored(offset, Message(value, key, headers, message.timestamp()[1]))
