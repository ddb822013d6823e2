"""Reads the topics that queries write, from the beginning on and through faults."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import confluent_kafka

from faults.spark.messages import brief
from millstream.model.names import TopicPartition
from millstream.sdk.sync.client import connect

PATIENCE_S = 90

_log = logging.getLogger(__name__)
Row = tuple[bytes, bytes]
"""A key and a value; stored values are shortened by `brief`."""


class Reader(threading.Thread, ABC):
    """A reader that ends at given offsets, and asserts that each partition's messages are in order and complete."""

    def __init__(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.rows: dict[TopicPartition, list[Row]] = defaultdict(list)
        self.failure: BaseException | None = None
        self.bootstrap = bootstrap
        self.partitions = partitions
        self._ends: Mapping[TopicPartition, int] | None = None
        self._end_s = 0.0

    @abstractmethod
    def messages(self) -> Iterator[tuple[TopicPartition, int, Row] | None]:
        """Yield messages as they arrive, and None at intervals."""

    def run(self) -> None:
        try:
            for found in self.messages():
                if found is not None:
                    where, offset, row = found
                    assert offset == len(self.rows[where]), f"{where}: {offset} came after {len(self.rows[where])}"
                    self.rows[where].append((row[0], brief(row[1])))
                elif self._is_over():
                    return
        except BaseException as failure:
            _log.exception("%s failed", self.name)
            self.failure = failure

    def _is_over(self) -> bool:
        ends = self._ends
        if ends is None:
            return False
        if all(len(self.rows[where]) >= end for where, end in ends.items()):
            return True
        found = {where: len(rows) for where, rows in self.rows.items()}
        assert time.monotonic() < self._end_s, f"expected messages up to {ends}, received up to {found}"
        return False

    def finish(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Row]]:
        """Read up to these offsets and return all messages."""
        self._end_s = time.monotonic() + PATIENCE_S
        self._ends = ends
        self.join()
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure
        return {where: self.rows[where] for where in self.partitions}


class SdkReader(Reader):
    def __init__(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(bootstrap, partitions)
        self._client = connect(bootstrap)
        topics = sorted({where.topic for where in partitions})
        self._consumer = self._client.consumer(topics, start="beginning", out_of_range="error")

    def messages(self) -> Iterator[tuple[TopicPartition, int, Row] | None]:
        with self._client, self._consumer as consumer:
            while True:
                for message in consumer.poll(timeout=0.2):
                    where = TopicPartition(message.topic, message.partition)
                    yield where, message.offset, (message.key or b"", message.value or b"")
                yield None


class LibrdkafkaReader(Reader):
    def messages(self) -> Iterator[tuple[TopicPartition, int, Row] | None]:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(*where, 0) for where in self.partitions])
        try:
            while True:
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is not None:
                        assert error.code() != confluent_kafka.KafkaError._AUTO_OFFSET_RESET, error
                        continue
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert partition is not None
                    assert offset is not None
                    yield TopicPartition(topic, partition), offset, (_bytes(message.key()), _bytes(message.value()))
                yield None
        finally:
            consumer.close()


def _bytes(data: str | bytes | None) -> bytes:
    return data.encode() if isinstance(data, str) else data or b""
