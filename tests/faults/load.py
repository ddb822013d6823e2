"""Runs producers and readers that retry through broker faults, and records their requests and answers."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from faults.record import SharedHistory
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.history import FinalLog, RecordedWrite

PATIENCE_S = 90.0
_OUTSTANDING_MAX = 200


class Worker(ABC):
    """One client in a thread of its own; `stop` raises the error with which it ended."""

    def __init__(self, name: str, bootstrap: str, partition: TopicPartition, history: SharedHistory) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.partition = partition
        self.history = history
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """Work until `stopping` is set, then complete pending requests."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(PATIENCE_S + 30)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self._failure is not None:
            raise AssertionError(f"{self.name} failed: {self._failure!r}") from self._failure

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as failure:
            self._failure = failure


class LibrdkafkaWriter(Worker):
    """An idempotent confluent-kafka producer with many single messages in flight, which it batches itself."""

    def run(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "log_level": 0,
        }
        producer = Producer(settings)
        number = 0
        while not self.stopping.is_set():
            if len(producer) >= _OUTSTANDING_MAX:
                producer.poll(0.05)
                continue
            self._send(producer, b"%s/%d" % (self.name.encode(), number))
            number += 1
            producer.poll(0.0005)
        left = producer.flush(PATIENCE_S)
        assert left == 0, f"{left} messages have no outcome"

    def _send(self, producer: Producer, value: bytes) -> None:
        write = self.history.ask_write(self.name, self.partition, [value])

        def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                self.history.stored(write, offset)
            else:
                self.history.abandoned(write, str(error))

        producer.produce(self.partition.topic, value, partition=self.partition.partition, on_delivery=delivered)


class SdkWriter(Worker):
    """A Millstream producer that makes one put of a few messages after the other."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        number = 0
        async with (
            WireClient(self.bootstrap) as client,
            client.producer(ProducerSettings(timeout_s=PATIENCE_S)) as producer,
        ):
            while not self.stopping.is_set():
                count = 1 + number % 5
                values = [b"%s/%d" % (self.name.encode(), number + i) for i in range(count)]
                number += count
                await self._put(producer, self.history.ask_write(self.name, self.partition, values))

    async def _put(self, producer: AsyncProducer, write: RecordedWrite) -> None:
        topic, partition = self.partition
        try:
            places = await producer.put_many(topic, write.values, partition=partition)
        except MillstreamError as error:
            self.history.abandoned(write, str(error))
        else:
            self.history.stored(write, places[0].offset)


class SdkReader(Worker):
    """Reads the whole log repeatedly, so that it also notices changes of old messages."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with WireClient(self.bootstrap) as client:
            offset = 0
            while not self.stopping.is_set():
                offset = await self._fetch(client, offset)

    async def _fetch(self, client: WireClient, offset: int) -> int:
        topic, partition = self.partition
        read = self.history.ask_read(self.name, self.partition, offset)
        try:
            fetched = await client.fetch(topic, partition, offset, max_wait_ms=100, timeout_s=5)
        except MillstreamError:
            return offset  # Not answered: the history records nothing about this read.
        records = [(record.offset, record.value or b"") for record in fetched.records]
        self.history.answered(read, records, fetched.log_start_offset, fetched.high_watermark)
        return fetched.next_offset if records else 0


class Load:
    """Runs several workers in a `with` block; at its end all must have finished without an error."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            worker.stopping.set()
        if error is None:
            for worker in self._workers:
                worker.join()


def mixed_load(bootstrap: str, partitions: Sequence[TopicPartition], history: SharedHistory) -> Load:
    """Run two librdkafka producers, one Millstream producer and a reader on each partition."""
    workers: list[Worker] = []
    for partition in partitions:
        mark = f"{partition.topic}-{partition.partition}"
        workers.append(LibrdkafkaWriter(f"librdkafka {mark} a", bootstrap, partition, history))
        workers.append(LibrdkafkaWriter(f"librdkafka {mark} b", bootstrap, partition, history))
        workers.append(SdkWriter(f"sdk {mark}", bootstrap, partition, history))
        workers.append(SdkReader(f"reader {mark}", bootstrap, partition, history))
    return Load(workers)


def create_topic(bootstrap: str, name: str, partitions: int) -> list[TopicPartition]:
    """Create a topic without retention limits."""

    async def create() -> None:
        async with WireClient(bootstrap) as client:
            await client.create_topic(name, partitions=partitions, settings={"retention.ms": "-1"})

    asyncio.run(create())
    return [TopicPartition(name, number) for number in range(partitions)]


def final_logs(bootstrap: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, FinalLog]:
    """Read the partitions completely."""

    async def read_one(client: WireClient, where: TopicPartition) -> FinalLog:
        first = await client.list_offset(where.topic, where.partition, BEGINNING)
        end = await client.list_offset(where.topic, where.partition, LATEST)
        assert first is not None
        assert end is not None
        records: list[tuple[int, bytes]] = []
        offset = first.offset
        while offset < end.offset:
            fetched = await client.fetch(where.topic, where.partition, offset)
            records += [(record.offset, record.value or b"") for record in fetched.records]
            assert fetched.next_offset > offset, f"{where} returns nothing at {offset} of {end.offset}"
            offset = fetched.next_offset
        return FinalLog(first.offset, end.offset, tuple(records))

    async def read_all() -> dict[TopicPartition, FinalLog]:
        async with WireClient(bootstrap) as client:
            return {where: await read_one(client, where) for where in partitions}

    return asyncio.run(read_all())
