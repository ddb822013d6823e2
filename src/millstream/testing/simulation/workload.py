"""Simulates producers and readers on the real SDK, which record their requests and responses in the history."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.failures import UnstoredError
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.history import FinalLog, History
from millstream.testing.simulation.plan import ProducerPlan, ReaderPlan, TopicPlan

PUT_TIMEOUT_S = 60.0
_PAUSE_AFTER_ERROR_S = 0.2
_BATCH_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class HistoryRecorder:
    """Records what clients do, and checks whether bytes are on stable storage."""

    history: History
    note: Callable[..., None]
    is_durable: Callable[[bytes], bool] | None
    """Returns True if the bytes are on stable storage. None if the flush policy does not guarantee it."""

    def durable(self, values: Sequence[bytes], compression: str) -> bool | None:
        """Return True if acknowledged values are on stable storage; None if that is not guaranteed or unknown."""
        if self.is_durable is None or compression != "none":
            return None
        return all(map(self.is_durable, values))


class ValueSource:
    """Creates unique values that name their producer and partition."""

    def __init__(self, plan: ProducerPlan, random: Random) -> None:
        self._plan = plan
        self._random = random
        self._made = 0

    def make(self, partition: TopicPartition) -> list[bytes]:
        """Make the values of one batch.

        A few batches exceed the smallest segment and are refused. Such a batch has one value, so the SDK cannot split
        it.
        """
        random, values, size = self._random, list[bytes](), 0
        if random.random() > 0.98:
            return [self._value(partition, random.randint(0, 10 * _BATCH_BYTES))]
        for _ in range(random.randint(1, self._plan.records_max)):
            values.append(self._value(partition, random.randint(0, self._plan.value_bytes_max)))
            size += len(values[-1])
            if size > _BATCH_BYTES:
                break
        return values

    def _value(self, partition: TopicPartition, filler_bytes: int) -> bytes:
        self._made += 1
        return f"<{self._plan.name}/{partition}/{self._made}>".encode() + self._random.randbytes(filler_bytes)


class WorkloadParts(NamedTuple):
    """The parts of a simulation that a producer or a reader uses."""

    client: WireClient
    partitions: Sequence[TopicPartition]
    book: HistoryRecorder
    random: Random


class SimulatedProducer:
    """Writes unique values. Each batch is put once, however often the SDK sends it."""

    def __init__(self, plan: ProducerPlan, parts: WorkloadParts) -> None:
        self._plan = plan
        self._client, self._partitions, self._book, self._random = parts
        self._left = plan.batches
        self._values = ValueSource(plan, parts.random)

    async def run(self) -> None:
        """Write all batches, with the planned number in flight."""
        options = ProducerSettings(compression=self._plan.compression, timeout_s=PUT_TIMEOUT_S)
        async with self._client.producer(options) as producer, asyncio.TaskGroup() as group:
            for number in range(self._plan.lanes):
                group.create_task(self._run_lane(producer), name=f"{self._plan.name} lane {number}")

    async def _run_lane(self, producer: AsyncProducer) -> None:
        while self._left > 0:
            self._left -= 1
            await self._put(producer, self._random.choice(self._partitions))
            if self._plan.pause_s:
                await asyncio.sleep(2 * self._plan.pause_s * self._random.random() * self._plan.lanes)

    async def _put(self, producer: AsyncProducer, partition: TopicPartition) -> None:
        values = self._values.make(partition)
        history, note = self._book.history, self._book.note
        write = history.ask_write(self._plan.name, partition, values)
        try:
            results = await producer.put_many(partition.topic, values, partition=partition.partition)
        except UnstoredError as error:
            note("put failed", self._plan.name, str(partition), error.code.name, error.in_doubt)
            if error.in_doubt:
                history.abandoned(write, str(error))
            else:
                history.refused(write, str(error))
        else:
            note("put", self._plan.name, str(partition), results[0].offset, len(values))
            # The SDK splits a batch that the broker finds too large, and other writes may come in between.
            is_one_piece = results[-1].offset - results[0].offset == len(results) - 1
            base_offset = results[0].offset if is_one_piece else -1
            history.stored(write, base_offset, durable=self._book.durable(values, self._plan.compression))


class SimulatedReader:
    """Reads every partition from its start, and sometimes starts again."""

    def __init__(self, plan: ReaderPlan, parts: WorkloadParts) -> None:
        self._plan = plan
        self._client, self._partitions, self._book, self._random = parts

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            for partition in self._partitions:
                group.create_task(self._follow(partition), name=f"{self._plan.name} {partition}")

    async def _follow(self, partition: TopicPartition) -> None:
        position = 0
        while True:
            position = await self._fetch(partition, position)
            if self._random.random() < self._plan.restarts_chance:
                position = 0

    async def _fetch(self, partition: TopicPartition, position: int) -> int:
        """Fetch once, and return the next position."""
        read = self._book.history.ask_read(self._plan.name, partition, position)
        try:
            fetched = await self._client.fetch(
                partition.topic,
                partition.partition,
                position,
                max_bytes=self._plan.max_bytes,
                max_wait_ms=self._plan.max_wait_ms,
            )
        except MillstreamError as error:
            self._book.note("fetch failed", self._plan.name, str(partition), position, error.code.name)
            await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
            # Retention has removed the position: continue at the log start.
            return await self._start_of(partition) if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else position
        records = [(record.offset, record.value or b"") for record in fetched.records]
        self._book.note("fetch", self._plan.name, str(partition), position, len(records), fetched.high_watermark)
        self._book.history.answered(read, records, fetched.log_start_offset, log_end=fetched.high_watermark)
        if not records:
            await asyncio.sleep(0.05 + 0.1 * self._random.random())
        # A log that lost its tail in a power loss, as weak flush policies permit, ends before the reader's position.
        return min(fetched.next_offset, fetched.high_watermark)

    async def _start_of(self, partition: TopicPartition) -> int:
        try:
            found = await self._client.list_offset(partition.topic, partition.partition, BEGINNING)
        except MillstreamError:
            return 0
        return found.offset if found is not None else 0


async def create_topics(client: WireClient, topics: Sequence[TopicPlan]) -> None:
    """Create the topics, with retries."""
    for topic in topics:
        settings = {"retention.bytes": str(topic.retention_bytes)}
        while True:
            try:
                await client.create_topic(topic.name, partitions=topic.partitions, settings=settings)
                break
            except MillstreamError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


async def read_whole(client: WireClient, partition: TopicPartition, book: HistoryRecorder) -> FinalLog:
    """Read the whole content of a partition. Errors fail the run."""
    while True:
        try:
            return await _read_whole(client, partition, book)
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # Retention has moved the log start meanwhile: read again from there.


async def _read_whole(client: WireClient, partition: TopicPartition, book: HistoryRecorder) -> FinalLog:
    start = await client.list_offset(partition.topic, partition.partition, BEGINNING)
    end = await client.list_offset(partition.topic, partition.partition, LATEST)
    assert start is not None
    assert end is not None
    position = start.offset
    records: list[tuple[int, bytes]] = []
    while position < end.offset:
        read = book.history.ask_read("final reader", partition, position)
        fetched = await client.fetch(partition.topic, partition.partition, position, max_wait_ms=0)
        found = [(record.offset, record.value or b"") for record in fetched.records]
        book.history.answered(read, found, fetched.log_start_offset, log_end=fetched.high_watermark)
        if fetched.next_offset <= position:
            break
        records += found
        position = fetched.next_offset
    book.note("final log", str(partition), start.offset, end.offset, len(records))
    return FinalLog(start.offset, end.offset, tuple(records))
