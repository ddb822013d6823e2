"""Drives confluent-kafka, the Python client of a current librdkafka."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient as LibrdkafkaAdmin
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from interop.clients.client import (
    COOPERATIVE,
    EAGER,
    NEW,
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
from interop.clients.live import PolledMember

QUIET: dict[str, Any] = {"log_level": 0}
_GROUPS: Mapping[str, dict[str, Any]] = {
    EAGER: {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300},
    COOPERATIVE: {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300},
    NEW: {"group.protocol": "consumer"},
}


class ConfluentClient(SettingsClient):
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
        self._ask(lambda admin: admin.create_topics([topic])[name])

    def delete_topic(self, name: str) -> None:
        self._ask(lambda admin: admin.delete_topics([name])[name])

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        rows = self._ask(lambda admin: admin.describe_configs([resource])[resource])
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: ToldSetting(row.value, row.source == own) for name, row in rows.items()}

    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=dict(settings))
        with warnings.catch_warnings():
            # The call is deprecated, but older programs use it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._ask(lambda admin: admin.alter_configs([resource])[resource])

    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        steps = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            if value is not None
            else ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=steps)
        self._ask(lambda admin: admin.incremental_alter_configs([resource])[resource])

    def grow(self, topic: str, total: int) -> None:
        self._ask(lambda admin: admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition, before)
        return int(self._ask(lambda admin: admin.delete_records([place])[place]).low_watermark)

    def cluster(self) -> ToldCluster:
        found = self._ask(lambda admin: admin.describe_cluster())
        brokers = {node.id: (node.host, node.port) for node in found.nodes}
        return ToldCluster(found.cluster_id, found.controller.id, brokers)

    def groups(self) -> set[str]:
        return {group.group_id for group in self._ask(lambda admin: admin.list_consumer_groups()).valid}

    def describe_group(self, group: str) -> GroupView:
        found = self._ask(lambda admin: admin.describe_consumer_groups([group])[group])
        return GroupView(found.state.name.lower(), len(found.members))

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self._ask(lambda admin: admin.list_consumer_group_offsets(asked)[group])
        return {one.partition: one.offset for one in found.topic_partitions if one.topic == topic and one.offset >= 0}

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        done = self._ask(lambda admin: admin.alter_consumer_group_offsets(wanted)[group])
        for place in done.topic_partitions:
            if place.error is not None:
                raise RefusedError(place.error.code(), place.error.str())

    def delete_group(self, group: str) -> None:
        self._ask(lambda admin: admin.delete_consumer_groups([group])[group])

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return ConfluentMember(self.bootstrap, group, topic, protocol)

    def stream(self, topic: str) -> Stream:
        return ConfluentStream(self.bootstrap, topic)

    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        admin = self._admin()  # Must outlive its requests.
        try:
            return ask(admin).result(TIMEOUT_S)
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


class ConfluentMember(PolledMember):
    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        base: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        self._settings = QUIET | base | _GROUPS[protocol]
        self._topic = topic
        super().__init__()

    def _open(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([self._topic])

    def _poll(self) -> Sequence[Received]:
        found = []
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            # librdkafka reports and retries other errors itself, such as a broker that is down for a while.
            if error is not None and error.fatal():
                raise RefusedError(error.code(), error.str())
            if error is None:
                found.append(_received(message))
        return found

    def _current(self) -> frozenset[int]:
        return frozenset(place.partition for place in self._consumer.assignment())

    def _commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def _close(self) -> None:
        self._consumer.close()


class ConfluentStream(Stream):
    def __init__(self, bootstrap: str, topic: str) -> None:
        base: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 1000,
        }
        self._producer = Producer(QUIET | base)
        self._topic = topic
        self._errors: list[KafkaError] = []

    def send(self, messages: Sequence[Message]) -> None:
        def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
            if error is not None:
                self._errors.append(error)

        for message in messages:
            self._producer.produce(self._topic, message.value, message.key, partition=0, on_delivery=delivered)
        self._producer.poll(0)

    def close(self) -> None:
        left = self._producer.flush(2 * TIMEOUT_S)
        for error in self._errors:
            raise RefusedError(error.code(), error.str())
        assert left == 0, f"{left} messages were not acknowledged in time"


def _received(message: KafkaMessage) -> Received:
    stored, partition = _stored(message), message.partition()
    assert partition is not None
    return Received(partition, stored.offset, stored.message.value)


def _stored(message: KafkaMessage) -> Stored:
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    pairs: Any = message.headers() or ()
    headers = tuple((name, content) for name, content in pairs)
    return Stored(offset, Message(value, key, headers, message.timestamp()[1]))
