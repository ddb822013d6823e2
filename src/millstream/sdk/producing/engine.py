"""Runs a producer on its event loop: takes chunks, distributes them over partitions, flushes, closes.

A chunk is due when it is full, when its linger time is over, or when a caller waits for one of its messages. While the
maximum number of batches of its topic is in flight, a due chunk stays open and grows, because it could not be sent yet.
Chunks of one topic are distributed in the order in which they were sealed. Messages that one thread puts to one
partition therefore keep their order.
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
from millstream.process.log_event import LogEvent
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.producing.batch_compression import BatchCompressor
from millstream.sdk.producing.bulk import Receipts, chunks_of, is_table, table_chunks
from millstream.sdk.producing.chunk import Accumulator, ProducerBatch, ProducerChunk
from millstream.sdk.producing.chunk_partitioning import (
    has_chosen_partition,
    redistribute,
    split_columns,
    split_table,
    whole_batch,
)
from millstream.sdk.producing.failures import UnstoredError
from millstream.sdk.producing.leader_route import LeaderRoute, request_identity
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.producing.partition_queue import IN_FLIGHT_MAX, PartitionQueue
from millstream.sdk.producing.producer_identities import ProducerIdentities
from millstream.sdk.producing.receipt_waiters import ReceiptWaiters, log
from millstream.sdk.producing.request_batching import RequestBatcher
from millstream.seams.clock import Clock

_LATE_S = 5.0
"""Maximum time after its deadline until a message succeeds or fails: the last request may still be answered."""

_FAILED_KEPT = 1_000
"""Maximum number of failed batches kept for the next flush. Failures are also logged."""


@dataclass(slots=True)
class _Flow:
    """The state of one topic in the producer: waiting chunks, metadata lookup, batches in flight."""

    topic: str
    turn: int
    chunks: deque[ProducerChunk] = field(default_factory=deque)
    lookup: asyncio.Task[None] | None = None
    partitions: int = 1
    in_flight: int = 0

    @property
    def is_full(self) -> bool:
        return bool(self.chunks) or self.in_flight >= IN_FLIGHT_MAX * self.partitions


class ProducerEngine:
    """The engine of one producer. All but `intake` and `receipt_waiters` is used on one event loop only."""

    def __init__(self, caller: RetryingCaller, clock: Clock, options: ProducerSettings) -> None:
        self.options = options
        self._caller = caller
        self._cluster = caller.cluster
        self._loop = asyncio.get_running_loop()
        self.receipt_waiters = ReceiptWaiters(self._loop, clock, caller.entropy, self._hurry)
        self.intake = Accumulator(
            self.receipt_waiters.lock,
            self.receipt_waiters,
            options,
            clock.wall_ms,
            self._signal,
            self._make_room,
            check_topic_name,
        )
        self._identities = ProducerIdentities(lambda deadline: request_identity(caller, deadline))
        self._compressor = BatchCompressor(caller.workers)
        self._batcher = RequestBatcher()
        self._flows: dict[str, _Flow] = {}
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._unsettled: dict[ProducerChunk, None] = {}
        self._failed: deque[ProducerBatch] = deque(maxlen=_FAILED_KEPT)
        self._linger: asyncio.TimerHandle | None = None
        self._due_topics: set[str] = set()
        self._room: list[tuple[int, Callable[[], object]]] = []
        self._flush_waiters: list[asyncio.Future[None]] = []
        self.settled_within_s = options.timeout_s + options.linger_s + _LATE_S
        self.close_timeout_s = self.settled_within_s

    def put_many(self, topic: str, values: Any, **columns: Any) -> Receipts:
        """Add many messages at once, from any thread; see `chunks_of` and `table_chunks`."""
        make = table_chunks if is_table(values) else chunks_of
        chunks = make(topic, self.receipt_waiters, self.options, values, **columns)
        self.intake.put_chunks(chunks)
        return Receipts(topic, self.receipt_waiters, chunks)

    # Taking chunks. `_signal` and `_hurry` are called from any thread.

    def _signal(self) -> None:
        try:
            self.receipt_waiters.call_soon(self._wake)
        except MillstreamError as error:
            self.intake.refusal = error  # The next put would not signal again, and would be lost silently.
            raise

    def _hurry(self, chunk: ProducerChunk) -> None:
        if not chunk.is_sealed and not chunk.is_hurried:
            chunk.is_hurried = True
            self.receipt_waiters.call_soon(self._hurry_chunks, (chunk,))

    def _wake(self) -> None:
        """Handle a new or a full chunk: start the linger timer, and take due chunks."""
        if self.options.linger_s == 0:
            self._note_due(self.intake.open_chunks())
        elif self._linger is None:
            self._linger = self._loop.call_later(self.options.linger_s, self._lingered)
        self._take_due()

    def _lingered(self) -> None:
        self._linger = None
        self._hurry_chunks()

    def _hurry_chunks(self, chunks: Iterable[ProducerChunk] | None = None) -> None:
        """Mark these chunks as due, or all open chunks."""
        self._note_due(self.intake.open_chunks() if chunks is None else chunks)
        self._take_due()

    def _note_due(self, chunks: Iterable[ProducerChunk]) -> None:
        """Mark chunks as due. Their delivery timeout starts now, even if they stay open."""
        for chunk in chunks:
            self._due_topics.add(chunk.topic)
            if chunk.deadline is None:
                chunk.deadline = Deadline(self.options.timeout_s)

    def _take_due(self) -> None:
        """Take sealed chunks, and due chunks of topics that can have more batches in flight."""
        due = [topic for topic in self._due_topics if (flow := self._flows.get(topic)) is None or not flow.is_full]
        self._due_topics.difference_update(due)
        self._take(due)

    def _take(self, topics: Iterable[str] | None) -> None:
        for chunk in self.intake.take(topics):
            if chunk.deadline is None:
                chunk.deadline = Deadline(self.options.timeout_s)
            flow = self._flows.get(chunk.topic)
            if flow is None:
                turn = int.from_bytes(self._caller.entropy.token(2), "big")
                flow = self._flows[chunk.topic] = _Flow(chunk.topic, turn)
            self._unsettled[chunk] = None
            flow.chunks.append(chunk)
            self._advance(flow)

    # Distributing over partitions.

    def _advance(self, flow: _Flow) -> None:
        while flow.chunks and flow.lookup is None:
            view = self._cluster.remembered(flow.topic)
            if view is None:
                flow.lookup = self._loop.create_task(self._look_up(flow))
                return
            flow.partitions = len(view.partitions)
            self._distribute(flow, flow.chunks.popleft())

    async def _look_up(self, flow: _Flow) -> None:
        """Request the topic's metadata for its first chunk; the chunk fails if the request fails."""
        chunk = flow.chunks[0]
        deadline: Deadline = chunk.deadline
        try:
            await self._caller.retrying(
                lambda: self._cluster.topic(flow.topic, deadline, auto_create=True), deadline, flow.topic
            )
        except Exception as error:
            what = f"the metadata request for topic {flow.topic!r}"
            failure = error if isinstance(error, MillstreamError) else client_failed(log, what, error)
            flow.chunks.popleft()
            flow.in_flight += 1
            self._settled(self._unsent(chunk), failure.with_traceback(None))
        flow.lookup = None
        self._advance(flow)

    def _distribute(self, flow: _Flow, chunk: ProducerChunk) -> None:
        turn = flow.turn % flow.partitions
        flow.turn += 1
        with self.receipt_waiters.lock:
            chunk.partition_count = flow.partitions
            batches = split_table(chunk, turn) if chunk.table is not None else split_columns(chunk, turn)
            chunk.unsettled = chunk.unencoded = len(batches)
        flow.in_flight += len(batches)
        for batch in batches:
            self._queue(TopicPartition(flow.topic, batch.partition)).add(batch)

    async def _move(self, batch: ProducerBatch) -> bool:
        """Distribute a batch again whose partition no longer exists: its topic was recreated with fewer partitions.

        Returns False if the partition exists, if the caller chose it, or if the order must be kept (`in_order`).
        """
        chunk: ProducerChunk = batch.chunk
        if chunk.options.in_order or has_chosen_partition(batch):
            return False
        try:
            view = await self._cluster.topic(chunk.topic, chunk.deadline, auto_create=True)
        except MillstreamError:
            return False
        flow = self._flows[chunk.topic]
        flow.partitions = len(view.partitions)
        if batch.partition < flow.partitions:
            return False
        batches = await redistribute(
            batch, partition_count=flow.partitions, turn=flow.turn % flow.partitions, compressor=self._compressor
        )
        flow.turn += 1
        flow.in_flight += len(batches) - 1
        for each in batches:
            self._queue(TopicPartition(flow.topic, each.partition)).add(each)
        return True

    def _unsent(self, chunk: ProducerChunk) -> ProducerBatch:
        """Return a chunk without a partition as one batch, so that it can be settled with an error."""
        with self.receipt_waiters.lock:
            chunk.unsettled = chunk.unencoded = 1
            return whole_batch(chunk, -1)

    def _queue(self, where: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(where)
        if queue is None:
            route = LeaderRoute(self._caller, where, self._batcher)
            queue = PartitionQueue(
                where, route, self._identities, self._caller.entropy, self._settled, self._move, self._compressor
            )
            self._queues[where] = queue
        return queue

    # Outcomes.

    def _settled(self, batch: ProducerBatch, error: MillstreamError | None) -> None:
        chunk: ProducerChunk = batch.chunk
        self.intake.release(batch.held_bytes)
        self._flows[chunk.topic].in_flight -= 1
        outcome = "messages_put" if error is None else "messages_unstored"
        self._caller.metrics.count(outcome, batch.count, {"topic": chunk.topic})
        if error is not None:
            self._failed.append(batch)
            # INFO, because receipts and flushes report the failure as well.
            log.info(LogEvent("put failed", topic=chunk.topic, messages=batch.count, error=error))
        chunk.unsettled -= 1
        if chunk.unsettled == 0:
            del self._unsettled[chunk]
            chunk.drop_rows()
        self.receipt_waiters.settle(batch, error)
        self._wake_waiting_puts()
        if chunk.unsettled == 0 and self._flush_waiters:
            waiting, self._flush_waiters = self._flush_waiters, []
            for future in waiting:
                _set(future)
        if self._due_topics:
            self._take_due()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all messages put before are settled; raises TimeoutError after `timeout_s`.

        With acks=0 the brokers have then read the messages, unless a connection was lost. Raises UnstoredError if
        messages failed whose receipts were not read.
        """
        await self._settle(timeout_s)
        self._raise_unseen()

    def _raise_unseen(self) -> None:
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
                self._flush_waiters.append(future)
                await future
            if self.options.acks == 0:
                await self._cluster.wait_until_received()

    async def close(self) -> None:
        """Refuse new messages, flush for up to `close_timeout_s`, then give up the unsettled messages.

        Raises UnstoredError, with the numbers of unstored messages and unknown outcomes, unless all are stored.
        """
        self.intake.refusal = MillstreamError(ErrorCode.CLIENT_CLOSED, "the producer is closed")
        try:
            await self.flush(self.close_timeout_s)
        except TimeoutError:
            self.give_up()
            self._raise_unseen()
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Settle all messages at once: unsent ones as not stored, sent ones as outcome unknown."""
        self.intake.refusal = MillstreamError(ErrorCode.CLIENT_CLOSED, "the producer is closed")
        self._take(None)
        if self._linger is not None:
            self._linger.cancel()
        for flow in list(self._flows.values()):
            if flow.lookup is not None:
                flow.lookup.cancel()
            while flow.chunks:
                text = f"topic {flow.topic!r}: nothing was sent; the producer was closed first"
                flow.in_flight += 1
                self._settled(self._unsent(flow.chunks.popleft()), MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text))
        for queue in list(self._queues.values()):
            queue.give_up()

    # Backpressure.

    def _make_room(self, size_bytes: int) -> None:
        """Block until the buffer has room; raises PRODUCER_FULL after a timeout, and at once on the event loop."""
        self.receipt_waiters.call_soon(self._hurry_chunks)
        try:
            self.receipt_waiters.refuse_to_block()
        except MillstreamError:
            raise self._full("wait with `await producer.room()`, then put again") from None
        event = threading.Event()
        with self.receipt_waiters.lock:
            if self._has_room(size_bytes):
                return
            self._room.append((size_bytes, event.set))
        if not event.wait(self.options.room_timeout_s):
            raise self._full(f"there was no room for {self.options.room_timeout_s:g} s")

    async def room(self, size_bytes: int = 0) -> None:
        """Wait until the buffer has room for `size_bytes`, and at least half of it is free."""
        size_bytes = max(size_bytes, self.options.max_bytes // 2)
        while True:
            future = self._loop.create_future()
            with self.receipt_waiters.lock:
                if self._has_room(size_bytes):
                    return
                self._room.append((size_bytes, partial(_set, future)))
            self._hurry_chunks()
            await future

    def health(self) -> ConnectionHealth:
        """Return the state of the producer's connections, and the bytes that are not acknowledged."""
        return self._cluster.health(self.intake.held_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        held_bytes: int = self.intake.held_bytes
        return held_bytes == 0 or held_bytes + size_bytes <= self.options.max_bytes

    def _wake_waiting_puts(self) -> None:
        if self._room:
            with self.receipt_waiters.lock:
                ready = [wake for size_bytes, wake in self._room if self._has_room(size_bytes)]
                self._room = [each for each in self._room if each[1] not in ready]
            for wake in ready:
                wake()

    def _full(self, advice: str) -> MillstreamError:
        used = f"{self.intake.held_bytes} of max_bytes={self.options.max_bytes} bytes"
        text = f"the producer's buffer is full ({used}); {advice}"
        return MillstreamError(ErrorCode.PRODUCER_FULL, text)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
