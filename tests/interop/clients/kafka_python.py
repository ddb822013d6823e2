"""Drives kafka-python 3, the client in pure Python."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata

from interop.clients.ability import Ability
from interop.clients.client import (
    COOPERATIVE,
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
from interop.clients.live import PolledMember
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors


class KafkaPythonClient(SettingsClient):
    name = "kafka-python"
    cannot: ClassVar[Mapping[Ability, str]] = {Ability.NEW_GROUP: "it supports only the classic group protocol"}

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Drop headers without a value."""
        return [
            replace(message, headers=tuple((name, content or b"") for name, content in message.headers))
            for message in messages
        ]

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
            batch_size=1_000_000,
            max_request_size=20_000_000,
        )
        try:
            waiting = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            return [int(future.get(timeout=TIMEOUT_S).offset) for future in waiting]
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            producer.close()

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        consumer = self._consumer()
        found: list[Stored] = []
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            end_s = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < end_s:
                for record in consumer.poll(timeout_ms=1000, max_records=count - len(found)).get(where, ()):
                    found.append(_stored(record))
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            consumer.close()
        return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            return int(consumer.beginning_offsets([where])[where]), int(consumer.end_offsets([where])[where])
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp_ms})[where]
            return None if found is None else int(found.offset)
        finally:
            consumer.close()

    def topics(self) -> Mapping[str, int]:
        return {found["name"]: len(found["partitions"]) for found in self._ask(lambda admin: admin.describe_topics())}

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(settings or {}),
        }
        self._ask(lambda admin: admin.create_topics({name: options}))

    def delete_topic(self, name: str) -> None:
        self._ask(lambda admin: admin.delete_topics([name]))

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        rows = self._ask(lambda admin: admin.describe_configs([resource], config_filter="all"))["topic"][topic]
        return {
            name: ToldSetting(row["value"], row["config_source"] == "DYNAMIC_TOPIC_CONFIG")
            for name, row in rows.items()
        }

    def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        self._alter(topic, settings, incremental=False)

    def change_settings(self, topic: str, settings: Mapping[str, str | None]) -> None:
        steps = {name: (("DELETE" if value is None else "SET"), value) for name, value in settings.items()}
        self._alter(topic, steps, incremental=True)

    def grow(self, topic: str, total: int) -> None:
        self._ask(lambda admin: admin.create_partitions({topic: total}))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        answer = self._ask(lambda admin: admin.delete_records({place: before}))
        return int(answer[place]["low_watermark"])

    def cluster(self) -> ToldCluster:
        found = self._ask(lambda admin: admin.describe_cluster())
        brokers = {row["broker_id"]: (row["host"], row["port"]) for row in found["brokers"]}
        return ToldCluster(found["cluster_id"], found["controller_id"], brokers)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._ask(lambda admin: admin.list_groups())}

    def describe_group(self, group: str) -> GroupView:
        found = self._ask(lambda admin: admin.describe_groups([group])[group])
        return GroupView(found["group_state"].lower(), len(found["members"]))

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        found = self._ask(lambda admin: admin.list_group_offsets({group: None})[group])
        return {where.partition: place.offset for where, place in found.items() if where.topic == topic}

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(topic, at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
        done = self._ask(lambda admin: admin.alter_group_offsets(group, places))
        for error in done.values():
            if error is not NoError:
                raise RefusedError(error.errno, str(error))

    def delete_group(self, group: str) -> None:
        done = self._ask(lambda admin: admin.delete_groups([group]))
        if done[group] != "OK":
            raise RefusedError(getattr(errors, done[group]).errno, str(done))

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return KafkaPythonMember(self.bootstrap, group, topic, protocol)

    def stream(self, topic: str) -> Stream:
        return KafkaPythonStream(self.bootstrap, topic)

    def _alter(self, topic: str, settings: Mapping[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        options = {"incremental": incremental, "raise_on_unknown": False}
        result = self._ask(lambda admin: admin.alter_configs([resource], **options))["topic"][topic]
        if result != "OK":
            number = re.match(r"\[Error (\d+)\]", result)
            assert number, result
            raise RefusedError(int(number[1]), result)

    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            return ask(admin)
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            admin.close()

    def _consumer(self) -> Any:
        return KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="none", enable_auto_commit=False)


class KafkaPythonMember(PolledMember):
    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        chosen = CooperativeStickyAssignor if protocol == COOPERATIVE else RangePartitionAssignor
        self._settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "heartbeat_interval_ms": 300,
            "partition_assignment_strategy": (chosen,),
        }
        self._topic = topic
        self._consumer: Any = None
        super().__init__()

    def assigned(self) -> frozenset[int]:
        """Return the partitions, also during a poll, because a poll may take long."""
        self._check()
        return frozenset() if self._consumer is None else self._current()

    def _open(self) -> None:
        self._consumer = KafkaConsumer(self._topic, **self._settings)

    def _poll(self) -> Sequence[Received]:
        try:
            # A poll that times out while the member joins may lose its assignment.
            answer = self._consumer.poll(timeout_ms=200 if self._assigned else 2_000)
        except KafkaError as failure:
            # kafka-python leaves retries to its user.
            if not failure.retriable:
                raise
            return []
        return [Received(one.partition, one.offset, one.value) for records in answer.values() for one in records]

    def _current(self) -> frozenset[int]:
        return frozenset(where.partition for where in self._consumer.assignment())

    def _commit(self) -> None:
        self._consumer.commit()

    def _close(self) -> None:
        self._consumer.close()


class KafkaPythonStream(Stream):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer: Any = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        self._topic = topic
        self._waiting: list[Any] = []

    def send(self, messages: Sequence[Message]) -> None:
        self._waiting += [
            self._producer.send(self._topic, value=message.value, key=message.key, partition=0) for message in messages
        ]

    def close(self) -> None:
        try:
            for future in self._waiting:
                future.get(timeout=2 * TIMEOUT_S)
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            self._producer.close()


def _refused(failure: Any) -> RefusedError:
    return RefusedError(failure.errno, str(failure))


def _stored(record: Any) -> Stored:
    return Stored(record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp))
