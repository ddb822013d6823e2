"""The event loop's side of a producer: takes chunks, shares them out over partitions, flushes, closes.

A chunk is taken when it is full, when it has lingered long enough, or when somebody waits for one of its messages; but
while its topic has as many batches under way as its partitions may have, it is left open to grow, since it would only
wait elsewhere. Chunks of one topic are shared out in the order in which they were sealed, so messages to one partition
keep the order in which one thread put them.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition, check_topic_name
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.producing.batch_compression import BatchCompressor
from millstream.sdk.producing.bulk import Receipts, chunks_of, is_table, table_chunks
from millstream.sdk.producing.chunk import Accumulator, ProducerBatch, ProducerChunk
from millstream.sdk.producing.chunk_partitioning import is_placed, share_anew, share_columns, share_table, whole
from millstream.sdk.producing.failures import UnstoredError, unconfirmed
from millstream.sdk.producing.leader_route import LeaderRoute, ask_identity
from millstream.sdk.producing.options import ProducerOptions
from millstream.sdk.producing.partition_queue import IN_FLIGHT_MAX, PartitionQueue, ProducerIdentities
from millstream.sdk.producing.receipt_waiters import ReceiptWaiters, log
from millstream.sdk.producing.request_batching import RequestBatcher
from millstream.seams.clock import Clock

_LATE_S = 5.0
"""How much later than its deadline a message's fate may be known: answers to what was sent last are waited for."""

_FAILED_KEPT = 1_000
"""Failed batches that are remembered for the next flush; older ones were logged."""


@dataclass(slots=True)
class _Flow:
    """One topic's way through the producer."""

    topic: str
    turn: int
    chunks: deque[ProducerChunk] = field(default_factory=deque)
    learning: asyncio.Task[None] | None = None
    partitions: int = 1
    under_way: int = 0

    @property
    def is_full(self) -> bool:
        return bool(self.chunks) or self.under_way >= IN_FLIGHT_MAX * self.partitions


class ProducerEngine:
    """One producer's work. Made, and used except for `intake` and `receipt_waiters`, on one event loop."""

    def __init__(self, asking: RetryingCaller, clock: Clock, options: ProducerOptions) -> None:
        self.options = options
        self._asking = asking
        self._cluster = asking.cluster
        self._loop = asyncio.get_running_loop()
        self.receipt_waiters = ReceiptWaiters(self._loop, clock, asking.entropy, self._hurry)
        self.intake = Accumulator(
            self.receipt_waiters.lock,
            self.receipt_waiters,
            options,
            clock.wall_ms,
            self._signal,
            self._make_room,
            check_topic_name,
        )
        self._identities = ProducerIdentities(lambda deadline: ask_identity(asking, deadline))
        self._packing = BatchCompressor(asking.workers)
        self._posting = RequestBatcher()
        self._flows: dict[str, _Flow] = {}
        self._lines: dict[TopicPartition, PartitionQueue] = {}
        self._unsettled: dict[ProducerChunk, None] = {}
        self._failed: deque[ProducerBatch] = deque(maxlen=_FAILED_KEPT)
        self._linger: asyncio.TimerHandle | None = None
        self._hurried: set[str] = set()
        self._room: list[tuple[int, Callable[[], object]]] = []
        self._settling: list[asyncio.Future[None]] = []
        self.settled_within_s = options.timeout_s + options.linger_s + _LATE_S
        self.close_timeout_s = self.settled_within_s

    def put_many(self, topic: str, values: Any, **columns: Any) -> Receipts:
        """Take many messages at once, from any thread; see `chunks_of` and `table_chunks`."""
        make = table_chunks if is_table(values) else chunks_of
        chunks = make(topic, self.receipt_waiters, self.options, values, **columns)
        self.intake.put_chunks(chunks)
        return Receipts(topic, self.receipt_waiters, chunks)

    # Taking chunks. The first two are called from any thread.

    def _signal(self) -> None:
        try:
            self.receipt_waiters.call_soon(self._wake)
        except MillstreamError as error:
            self.intake.refusal = error  # The next put would find the signal given, and be lost in silence.
            raise

    def _hurry(self, chunk: ProducerChunk) -> None:
        if not chunk.is_sealed and not chunk.is_hurried:
            chunk.is_hurried = True
            self.receipt_waiters.call_soon(self._hurry_chunks, (chunk,))

    def _wake(self) -> None:
        """A chunk was begun, or one is full."""
        if self.options.linger_s == 0:
            self._note_due(self.intake.open_chunks())
        elif self._linger is None:
            self._linger = self._loop.call_later(self.options.linger_s, self._lingered)
        self._take_due()

    def _lingered(self) -> None:
        self._linger = None
        self._hurry_chunks()

    def _hurry_chunks(self, chunks: Iterable[ProducerChunk] | None = None) -> None:
        """These are due, or whatever is open."""
        self._note_due(self.intake.open_chunks() if chunks is None else chunks)
        self._take_due()

    def _note_due(self, chunks: Iterable[ProducerChunk]) -> None:
        """Their time runs from now on, even where they are left open to grow."""
        for chunk in chunks:
            self._hurried.add(chunk.topic)
            if chunk.deadline is None:
                chunk.deadline = Deadline(self.options.timeout_s)

    def _take_due(self) -> None:
        """Take what is sealed, and what is due unless its topic has enough under way."""
        due = [topic for topic in self._hurried if (flow := self._flows.get(topic)) is None or not flow.is_full]
        self._hurried.difference_update(due)
        self._take(due)

    def _take(self, topics: Iterable[str] | None) -> None:
        for chunk in self.intake.take(topics):
            if chunk.deadline is None:
                chunk.deadline = Deadline(self.options.timeout_s)
            flow = self._flows.get(chunk.topic)
            if flow is None:
                turn = int.from_bytes(self._asking.entropy.token(2), "big")
                flow = self._flows[chunk.topic] = _Flow(chunk.topic, turn)
            self._unsettled[chunk] = None
            flow.chunks.append(chunk)
            self._advance(flow)

    # Sharing out.

    def _advance(self, flow: _Flow) -> None:
        while flow.chunks and flow.learning is None:
            view = self._cluster.remembered(flow.topic)
            if view is None:
                flow.learning = self._loop.create_task(self._learn(flow))
                return
            flow.partitions = len(view.partitions)
            self._share_out(flow, flow.chunks.popleft())

    async def _learn(self, flow: _Flow) -> None:
        """Have the topic described for its first chunk, which fails when it cannot be."""
        chunk = flow.chunks[0]
        deadline: Deadline = chunk.deadline
        try:
            await self._asking.retrying(
                lambda: self._cluster.topic(flow.topic, deadline, auto_create=True), deadline, flow.topic
            )
        except Exception as error:
            what = f"asking for topic {flow.topic!r}"
            failure = error if isinstance(error, MillstreamError) else client_failed(log, what, error)
            flow.chunks.popleft()
            flow.under_way += 1
            self._settled(self._unsent(chunk), failure.with_traceback(None))
        flow.learning = None
        self._advance(flow)

    def _share_out(self, flow: _Flow, chunk: ProducerChunk) -> None:
        turn = flow.turn % flow.partitions
        flow.turn += 1
        with self.receipt_waiters.lock:
            chunk.partition_count = flow.partitions
            batches = share_table(chunk, turn) if chunk.table is not None else share_columns(chunk, turn)
            chunk.unsettled = chunk.unencoded = len(batches)
        flow.under_way += len(batches)
        for batch in batches:
            self._line(TopicPartition(flow.topic, batch.partition)).add(batch)

    async def _move(self, batch: ProducerBatch) -> bool:
        """Share a batch out anew whose partition the topic has no more: it was deleted, and made with fewer.

        False where the partition is there, or chosen by the user, and where it would come behind later messages.
        """
        chunk: ProducerChunk = batch.chunk
        if chunk.options.in_order or is_placed(batch):
            return False
        try:
            view = await self._cluster.topic(chunk.topic, chunk.deadline, auto_create=True)
        except MillstreamError:
            return False
        flow = self._flows[chunk.topic]
        flow.partitions = len(view.partitions)
        if batch.partition < flow.partitions:
            return False
        batches = await share_anew(batch, flow.partitions, flow.turn % flow.partitions, self._packing)
        flow.turn += 1
        flow.under_way += len(batches) - 1
        for each in batches:
            self._line(TopicPartition(flow.topic, each.partition)).add(each)
        return True

    def _unsent(self, chunk: ProducerChunk) -> ProducerBatch:
        """A chunk that no partition was chosen for, as a batch to be settled."""
        with self.receipt_waiters.lock:
            chunk.unsettled = chunk.unencoded = 1
            return whole(chunk, -1)

    def _line(self, where: TopicPartition) -> PartitionQueue:
        line = self._lines.get(where)
        if line is None:
            route = LeaderRoute(self._asking, where, self._posting)
            line = PartitionQueue(
                where, route, self._identities, self._asking.entropy, self._settled, self._move, self._packing
            )
            self._lines[where] = line
        return line

    # What became of it.

    def _settled(self, batch: ProducerBatch, error: MillstreamError | None) -> None:
        chunk: ProducerChunk = batch.chunk
        self.intake.release(batch.held_bytes)
        self._flows[chunk.topic].under_way -= 1
        outcome = "messages_put" if error is None else "messages_unstored"
        self._asking.metrics.count(outcome, batch.count, {"topic": chunk.topic})
        if error is not None:
            self._failed.append(batch)
            log.info("%s: %s: %s", chunk.topic, unconfirmed(batch.count), error)  # A receipt or a flush tells as well.
        chunk.unsettled -= 1
        if chunk.unsettled == 0:
            del self._unsettled[chunk]
            chunk.drop_rows()
        self.receipt_waiters.settle(batch, error)
        self._tell_room()
        if chunk.unsettled == 0 and self._settling:
            waiting, self._settling = self._settling, []
            for future in waiting:
                _set(future)
        if self._hurried:
            self._take_due()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all that was put before is settled; TimeoutError when that takes longer.

        What nobody answers for (acks=0) has then been read by its broker, unless a connection was lost.
        UnstoredError when some was not stored, and nobody has asked those receipts for it yet.
        """
        await self._settle(timeout_s)
        self._tell_unseen()

    def _tell_unseen(self) -> None:
        failed, self._failed = self._failed, deque(maxlen=_FAILED_KEPT)
        unseen = [batch for batch in failed if batch.unseen > 0]
        if unseen:
            raise UnstoredError([(batch.unseen, batch.error) for batch in unseen])

    async def _settle(self, timeout_s: float) -> None:
        self._take(None)
        pending = dict(self._unsettled)
        async with asyncio.timeout(timeout_s):
            while pending := {chunk: None for chunk in pending if chunk in self._unsettled}:
                future = self._loop.create_future()
                self._settling.append(future)
                await future
            if self.options.acks == 0:
                await self._cluster.heard()

    async def close(self) -> None:
        """Take nothing more, flush for `close_timeout_s`, and end; what is not settled by then is given up.

        UnstoredError, saying how much is known not to be stored and how much is in doubt, unless all is stored.
        """
        self.intake.refusal = MillstreamError(ErrorCode.CLIENT_CLOSED, "the producer is closed")
        try:
            await self.flush(self.close_timeout_s)
        except TimeoutError:
            self.give_up()
            self._tell_unseen()
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Settle everything at once, by what is known of it."""
        self.intake.refusal = MillstreamError(ErrorCode.CLIENT_CLOSED, "the producer is closed")
        self._take(None)
        if self._linger is not None:
            self._linger.cancel()
        for flow in list(self._flows.values()):
            if flow.learning is not None:
                flow.learning.cancel()
            while flow.chunks:
                text = f"topic {flow.topic!r}: nothing was sent; the producer was closed first"
                flow.under_way += 1
                self._settled(self._unsent(flow.chunks.popleft()), MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text))
        for line in list(self._lines.values()):
            line.give_up()

    # Room.

    def _make_room(self, size_bytes: int) -> None:
        """Block until so much can be taken; PRODUCER_FULL when that takes too long, or on our own event loop."""
        self.receipt_waiters.call_soon(self._hurry_chunks)
        try:
            self.receipt_waiters.refuse_to_block()
        except MillstreamError:
            raise self._full("`await producer.room()` waits until there is room") from None
        event = threading.Event()
        with self.receipt_waiters.lock:
            if self._has_room(size_bytes):
                return
            self._room.append((size_bytes, event.set))
        if not event.wait(self.options.room_timeout_s):
            raise self._full(f"there was no room for {self.options.room_timeout_s:g} s")

    async def room(self, size_bytes: int = 0) -> None:
        """Wait until a put of this size is taken, and at most half of what may be held is."""
        size_bytes = max(size_bytes, self.options.max_bytes // 2)
        while True:
            future = self._loop.create_future()
            with self.receipt_waiters.lock:
                if self._has_room(size_bytes):
                    return
                self._room.append((size_bytes, partial(_set, future)))
            self._hurry_chunks()
            await future

    def _has_room(self, size_bytes: int) -> bool:
        held_bytes: int = self.intake.held_bytes
        return held_bytes == 0 or held_bytes + size_bytes <= self.options.max_bytes

    def _tell_room(self) -> None:
        if self._room:
            with self.receipt_waiters.lock:
                ready = [wake for size_bytes, wake in self._room if self._has_room(size_bytes)]
                self._room = [each for each in self._room if each[1] not in ready]
            for wake in ready:
                wake()

    def _full(self, how: str) -> MillstreamError:
        text = f"the producer holds {self.intake.held_bytes} of max_bytes={self.options.max_bytes} bytes; {how}"
        return MillstreamError(ErrorCode.PRODUCER_FULL, text)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
