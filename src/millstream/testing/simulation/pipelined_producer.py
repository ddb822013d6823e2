"""A producer that numbers its batches itself and has several of them under way, as librdkafka and the Java client do.

Per partition it works in rounds: up to `WINDOW` batches are sent one right after the other, then their answers are
awaited. Those without a good answer are sent again in the next round, in order and under the same numbers, before any
new ones. The broker must store each once and in order, whatever was lost on the way.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.responses import Produced, ProducerIdentity
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulation.history import RecordedWrite
from millstream.testing.simulation.plan import ProducerPlan
from millstream.testing.simulation.workload import PUT_TIMEOUT_S, HistoryRecorder, ValueSource

WINDOW = 5
_PAUSE_S = 0.1


@dataclass(slots=True)
class _Batch:
    write: RecordedWrite
    encoded: bytes
    give_up_s: float


class PipelinedProducer:
    """Sends its batches over several partitions, each partition by itself."""

    def __init__(
        self,
        plan: ProducerPlan,
        client: WireClient,
        partitions: Sequence[TopicPartition],
        book: HistoryRecorder,
        random: Random,
    ) -> None:
        self._plan = plan
        self._client = client
        self._partitions = random.sample(list(partitions), min(plan.lanes, len(partitions)))
        self._book = book
        self._random = random
        self._left = plan.batches
        self._values = ValueSource(plan, random)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in self._partitions:
                line = _Line(partition, self._client, self._book, self._plan)
                group.create_task(self._run_line(line), name=f"{self._plan.name} {partition}")

    async def _run_line(self, line: "_Line") -> None:
        while self._left > 0 or line.window:
            new = min(self._left, self._random.randint(1, WINDOW) - len(line.window))
            for _ in range(max(0, new) if await line.has_identity() else 0):
                self._left -= 1
                line.add(self._values.make(line.partition))
            await line.send_round()
            await asyncio.sleep(_PAUSE_S * self._random.random() + self._plan.pause_s)


class _Line:
    """The batches of one partition that wait for a good answer, in order."""

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
        """Get an identity where there is none; False while the broker gives none."""
        if self._identity is None:
            try:
                self._identity = await self._client.producer_identity()
            except MillstreamError:
                return False
            self._next_sequence = 0
        return True

    def add(self, values: Sequence[bytes]) -> None:
        """Number a new batch and put it behind the others."""
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
        """Send the whole window, and keep what got no good answer."""
        if not self.window:
            return
        try:
            # All know the leader before the first is sent, so that none overtakes another on the way to it.
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
        """Abandon the window, and its identity, when its first batch has no future or its time is over."""
        if not self.window:
            return
        no_future = first_refusal is not None and not first_refusal.code.retriable
        if no_future or asyncio.get_running_loop().time() > self.window[0].give_up_s:
            for batch in self.window:
                self._book.history.abandoned(batch.write, str(first_refusal))
            self.window = []
            self._identity = None
