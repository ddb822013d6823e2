"""kafka-python 3: the client in pure Python."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from interop.clients.client import (
    TIMEOUT_S,
    Message,
    RefusedError,
    SettingsClient,
    Stored,
    ToldCluster,
    ToldSetting,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition


class KafkaPythonClient(SettingsClient):
    name = "kafka-python"

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """A header's content must be there."""
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
        admin = self._admin()
        try:
            return {found["name"]: len(found["partitions"]) for found in admin.describe_topics()}
        finally:
            admin.close()

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

    def _alter(self, topic: str, settings: Mapping[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        options = {"incremental": incremental, "raise_on_unknown": False}
        result = self._ask(lambda admin: admin.alter_configs([resource], **options))["topic"][topic]
        if result != "OK":
            number = re.match(r"\[Error (\d+)\]", result)
            assert number, result
            raise RefusedError(int(number[1]), result)

    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        admin = self._admin()
        try:
            return ask(admin)
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            admin.close()

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(settings or {}),
        }
        admin = self._admin()
        try:
            admin.create_topics({name: options})
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            admin.close()

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        try:
            admin.delete_topics([name])
        except KafkaError as failure:
            raise _refused(failure) from failure
        finally:
            admin.close()

    def _admin(self) -> Any:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def _consumer(self) -> Any:
        return KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="none", enable_auto_commit=False)


def _refused(failure: Any) -> RefusedError:
    return RefusedError(failure.errno, str(failure))


def _stored(record: Any) -> Stored:
    return Stored(record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp))
