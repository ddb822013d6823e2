"""Simulates a producer that numbers its batches and keeps several in flight, as librdkafka and the Java client do.

It works in rounds per partition: it sends up to `WINDOW` batches one right after the other, then awaits the responses.
Failed batches are sent again in the next round, in order and with the same sequence numbers, before any new ones. The
broker must store each once and in order, whatever was lost in transit.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.responses import Produced, ProducerIdentity
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.history import RecordedWrite
from millstream.testing.simulation.plan import ProducerPlan
from millstream.testing.simulation.workload import PUT_TIMEOUT_S, HistoryRecorder, ValueSource, WorkloadParts

WINDOW = 5
_PAUSE_S = 0.1


@dataclass(slots=True)
class _Batch:
    write: RecordedWrite
    encoded: bytes
    give_up_s: float


class PipelinedProducer:
    """Sends its batches to several partitions, each independently."""

    def __init__(self, plan: ProducerPlan, parts: WorkloadParts) -> None:
        self._plan = plan
        self._client, partitions, self._book, self._random = parts
        self._partitions = self._random.sample(list(partitions), min(plan.lanes, len(partitions)))
        self._left = plan.batches
        self._values = ValueSource(plan, parts.random)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in self._partitions:
                queue = _PartitionQueue(partition, self._client, self._book, self._plan)
                group.create_task(self._run_queue(queue), name=f"{self._plan.name} {partition}")

    async def _run_queue(self, queue: "_PartitionQueue") -> None:
        while self._left > 0 or queue.window:
            new = min(self._left, self._random.randint(1, WINDOW) - len(queue.window))
            for _ in range(max(0, new) if await queue.has_identity() else 0):
                self._left -= 1
                queue.add(self._values.make(queue.partition))
            await queue.send_round()
            await asyncio.sleep(_PAUSE_S * self._random.random() + self._plan.pause_s)


class _PartitionQueue:
    """The unacknowledged batches of one partition, in order."""

    def __init__(
        self, partition: TopicPartition, client: WireClient, book: HistoryRecorder, plan: ProducerPlan
    ) -> None:
        self.partition = partition
        self.window: list[_Batch] = []
        self._client = client
        self._book = book
        self._plan = plan
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0

    async def has_identity(self) -> bool:
        """Get a producer id if there is none. Return False if the broker does not give one."""
        if self._identity is None:
            try:
                self._identity = await self._client.producer_identity()
            except MillstreamError:
                return False
            self._next_sequence = 0
        return True

    def add(self, values: Sequence[bytes]) -> None:
        """Number a new batch and append it."""
        assert self._identity is not None
        encoded = encode_batch(
            values,
            timestamps=0,
            compression=self._plan.compression,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequence,
        )
        self._next_sequence += len(values)
        write = self._book.history.ask_write(self._plan.name, self.partition, values)
        give_up_s = asyncio.get_running_loop().time() + PUT_TIMEOUT_S
        self.window.append(_Batch(write, bytes(encoded), give_up_s))

    async def send_round(self) -> None:
        """Send the whole window, and keep the batches without a successful response."""
        if not self.window:
            return
        try:
            # All batches know the leader before the first is sent, so that none overtakes another.
            await self._client.describe_topic(self.partition.topic)
        except MillstreamError:
            self._give_up_overdue(None)
            return
        answers = await asyncio.gather(*(self._send(batch) for batch in self.window))
        first_refusal: MillstreamError | None = None
        kept: list[_Batch] = []
        for batch, answer in zip(self.window, answers, strict=True):
            if isinstance(answer, Produced):
                self._stored(batch, answer.base_offset)
            elif answer.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._stored(batch, -1)
            else:
                first_refusal = first_refusal or answer
                kept.append(batch)
        self.window = kept
        self._give_up_overdue(first_refusal)

    async def _send(self, batch: _Batch) -> Produced | MillstreamError:
        topic, number = self.partition
        try:
            return await self._client.produce(topic, number, batch.encoded)
        except MillstreamError as error:
            self._book.note("produce failed", self._plan.name, str(self.partition), error.code.name)
            return error

    def _stored(self, batch: _Batch, base_offset: int) -> None:
        values = batch.write.values
        self._book.note("produced", self._plan.name, str(self.partition), base_offset, len(values))
        self._book.history.stored(batch.write, base_offset, durable=self._book.durable(values, self._plan.compression))

    def _give_up_overdue(self, first_refusal: MillstreamError | None) -> None:
        """Abandon the window and the producer id if its first batch has failed permanently or is overdue."""
        if not self.window:
            return
        no_future = first_refusal is not None and not first_refusal.code.retriable
        if no_future or asyncio.get_running_loop().time() > self.window[0].give_up_s:
            for batch in self.window:
                self._book.history.abandoned(batch.write, str(first_refusal))
            self.window = []
            self._identity = None
