"""Implements the consumer below its public classes (facades), as asyncio code on one event loop.

The caller is in one of three states: it *polls* (it waits in `messages`), it *has messages* in the delivered buffer, or
it *runs a callback* for a change of partitions.

- A poll marks the messages that the caller took before as finished.
- Assignment changes are applied, and finished offsets are committed, only when the caller polls. If one of these is
  due, the engine takes back the messages that the caller has not taken yet, so that it polls soon.
- A poll returns within its timeout. Commits continue in the background. An assignment change that takes longer
  continues too; the next poll waits for it, and the delivered buffer stays empty until then.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError, UnreadableError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.fetcher import Fetcher, FetcherRules
from millstream.sdk.consuming.group.membership import ConsumerMembership
from millstream.sdk.consuming.health import ConsumerActivity, Health
from millstream.sdk.consuming.options import ConsumerEngineSettings
from millstream.sdk.consuming.partition_reader import PartitionReader
from millstream.sdk.consuming.partition_source import Change, PartitionSource
from millstream.sdk.consuming.standalone import StandaloneSource
from millstream.sdk.consuming.start_positions import StartPositions
from millstream.sdk.feed.fetched_chunk import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.metrics import NO_METRICS, count_read
from millstream.sdk.requests import LATEST
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight

T = TypeVar("T")

_NEEDS_NO_BROKER = (ConsumerActivity.FINISHED, ConsumerActivity.CLOSED)
"""Activities in which a consumer does not report that its brokers are unreachable."""

START_TIMEOUT_S = 30.0
GIVE_BYTES = 8 * 1024 * 1024
"""Most bytes delivered to the caller by one poll; the caller opens the chunks one by one."""


class PollOutcome(Enum):
    """The result of a poll that reports no assignment change."""

    HERE = "the delivered buffer has messages"
    NOTHING = "the timeout has expired"
    OVER = "the consumer has reached its stop position"


class ConsumerEngine:
    """The engine of one consumer; must be created on its event loop. `notice` is called when the activity changes."""

    def __init__(
        self,
        asking: RetryingCaller,
        delivered: DeliveredBuffer,
        settings: ConsumerEngineSettings,
        notice: Callable[[], None] | None = None,
    ) -> None:
        self.delivered = delivered
        self._asking = asking
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        group = settings.group
        rules = FetcherRules(
            settings.prefetch_bytes,
            waits_for_topics=group is not None or settings.pattern is not None,
            waits_beyond_end=group is None,
            moves_on=settings.moves_on,
            local_files=settings.local_files,
            reads_others=settings.stop is None,
            caller_reads=delivered.reads,
        )
        self._reading = Fetcher(asking, self._changed, rules)
        self._membership: ConsumerMembership | None = None
        self._source: PartitionSource
        if group is None:
            self._source = StandaloneSource(asking, self._reading, settings, changed=self._changed)
        else:
            self._source = self._membership = ConsumerMembership(
                asking,
                self._reading,
                settings.topics,
                settings.start,
                group,
                progress=lambda: delivered.progress,
                changed=self._changed,
            )
        self._give_bytes = min(GIVE_BYTES, settings.prefetch_bytes // 4)
        self._notice = notice
        self._starting = SharedStart(self._start, "start of a consumer")
        self._following = SingleFlight(self._source.follow, "assignment change")
        self._deadline: Deadline | None = None
        self._recall: asyncio.TimerHandle | None = None
        self._is_asked = False
        self.doing = ConsumerActivity.STARTING
        self._since_s = self._loop.time()

    # Lifecycle.

    async def start(self) -> None:
        """Join the group, or look up the start offsets. Runs once; after a failure the next call starts again."""
        await self._starting.wait()

    async def _start(self) -> None:
        if self._membership is not None:
            self._do(ConsumerActivity.JOINING)
        await self._source.start(START_TIMEOUT_S)
        self._reading.start()

    async def close(self, *, finish: bool = False) -> None:
        """Close the consumer and leave its group. `finish` marks the messages that the caller took last as finished."""
        try:
            await self._starting.close()
            await self._following.close()
            self._forget_recall()
            self._source.finish(self.delivered.positions() if finish else self.delivered.finished())
            self._count_opened()
            self.delivered.close()  # A loop that is still running gets no more messages.
            if self.delivered.skipping is not None:
                self.delivered.skipping.log_skipped()
            await self._source.close()
        finally:
            await self._reading.close()
            self._do(ConsumerActivity.CLOSED)

    # Polling.

    async def messages(self, timeout_s: float | None, *, again: bool = False) -> Change | PollOutcome:
        """Fill the delivered buffer with the next messages, or return an assignment change.

        `timeout_s=None` waits without limit. `again` continues the previous poll with its remaining time, after a
        callback or after chunks without a usable message. Retriable failures are retried. Raises errors that a retry
        cannot fix (the group or topic is refused, messages are damaged), a failed start, and CLIENT_MISUSED if another
        task or thread is polling. A batch that cannot be decoded raises UNDECODABLE_BATCH whenever it is next, until a
        seek passes it.
        """
        if self._is_asked:
            text = "another task or thread is polling this consumer; use a consumer in one task or thread at a time"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        self._is_asked = True
        try:
            unreadable = self._come_back()
            if unreadable is not None:
                self._go(ConsumerActivity.IDLE)
                raise unreadable
            if not again:
                self._deadline = None if timeout_s is None else Deadline(timeout_s)
            if not await self._starting.wait_until(self._deadline):
                self._source.caller_is_busy(None)
                return PollOutcome.NOTHING
            return await self._until_given()
        finally:
            self._is_asked = False

    async def _until_given(self) -> Change | PollOutcome:
        while True:
            self._wake.clear()
            failure = self._reading.take_failure()
            if failure is not None:
                raise failure
            if self._source.is_changed or self._following.is_under_way:
                self._do(self._waiting_for())
                followed = await self._following.wait(self._deadline)
                if followed is None:
                    self._go(ConsumerActivity.IDLE)
                    return PollOutcome.NOTHING
                change = followed.result()
                if change is not None:
                    self._go(ConsumerActivity.IN_CALLBACK, change)
                    return change
            self._source.settle()
            if self._give():
                self._go(ConsumerActivity.IN_HANDLER)
                return PollOutcome.HERE
            if self._source.is_over:
                self._do(ConsumerActivity.FINISHED)
                return PollOutcome.OVER
            if self._deadline is not None and self._deadline.is_over:
                self._go(ConsumerActivity.IDLE)
                missing = self._reading.missing
                if missing is not None:
                    raise MillstreamError(missing.code, missing.detail)
                return PollOutcome.NOTHING
            await self._wait()

    def _give(self) -> bool:
        """Move fetched chunks to the delivered buffer; false if there are none."""
        chunks: list[FetchedChunk] = []
        size_bytes = 0
        while size_bytes < self._give_bytes:
            chunk = self._reading.next_chunk()
            if chunk is None:
                break
            chunks.append(chunk)
            size_bytes += len(chunk.stored)
        self.delivered.give(chunks)
        return bool(chunks)

    def _come_back(self) -> UnreadableError | None:
        """Mark the messages that the caller took as finished, and take back the others for a later poll.

        Returns the error of the batch that is next, if the caller could not decode it.
        """
        self._forget_recall()
        delivered = self.delivered
        damage = delivered.damage
        back = delivered.come_back()
        self._reading.piece_bytes = COLUMNS_BYTES if delivered.wants_columns else PIECE_BYTES
        positions = delivered.positions()
        for where, offset in positions.items():
            self._reading.readers[where].taken(offset)
        self._source.finish(positions)
        unreadable = damage[1] if damage is not None and isinstance(damage[1], UnreadableError) else None
        if damage is not None and unreadable is None:
            damaged, error = damage
            back = [chunk for chunk in back if chunk.feed is not damaged.feed]
            self._reading.refetch(damaged, error)
        self._reading.put_back(back)
        self._count_opened()
        delivered.give(())
        self._source.caller_is_back()
        return unreadable

    def _count_opened(self) -> None:
        opened, self.delivered.opened = self.delivered.opened, []
        if self._asking.metrics is not NO_METRICS:
            for topic, messages, size_bytes in opened:
                count_read(self._asking.metrics, topic, messages=messages, size_bytes=size_bytes)
        if self.delivered.skipping is not None:
            self.delivered.skipping.count_skipped(self._asking.metrics)

    def _go(self, doing: ConsumerActivity, change: Change | None = None) -> None:
        """Note that the poll returns to the caller, and schedule when to take its messages back."""
        self._source.caller_is_busy(change)
        self._do(doing)
        calls_in_s = self._source.calls_in_s
        if calls_in_s is not None and len(self.delivered):
            self._recall = self._loop.call_later(calls_in_s, self._take_back)

    def _take_back(self) -> None:
        """Take the remaining messages back, so that the caller polls soon."""
        self._forget_recall()
        self._reading.put_back(self.delivered.take_back())
        if len(self.delivered):  # The caller has opened a chunk and taken nothing of it yet; try again later.
            self._recall = self._loop.call_later(1.0, self._take_back)

    def _forget_recall(self) -> None:
        if self._recall is not None:
            self._recall.cancel()
            self._recall = None

    async def _wait(self) -> None:
        """Wait for a change, for the poll's deadline, or for the next task of the partition source."""
        self._do(self._waiting_for())
        limits_s = [] if self._deadline is None else [self._deadline.left_s]
        if self._source.due_in_s is not None:
            limits_s.append(self._source.due_in_s)
        try:
            async with asyncio.timeout(min(limits_s, default=None)):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _changed(self) -> None:
        self._wake.set()
        if self._membership is not None and self._membership.wants_attention and len(self.delivered):
            self._take_back()

    # Positions.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._reading.readers))

    def position(self, where: TopicPartition) -> int | None:
        """Return the offset after the last message that the caller took; None for a partition that is not read."""
        reader = self._reading.readers.get(where)
        return None if reader is None else self.delivered.positions().get(where, reader.delivered_offset)

    async def seek(self, offsets: StartPositions, places: Sequence[TopicPartition] | None, timeout_s: float) -> None:
        """Continue at these offsets in the given partitions; `places=None` means all partitions."""
        await self.start()
        readers = self._readers(places)
        found = await offsets.find(self._asking, list(readers), Deadline(timeout_s))
        self._reading.put_back(self.delivered.come_back())
        for where, offset in found.items():
            self.delivered.forget(where)
            self._reading.seek(readers[where], offset)
            self._source.finish({where: offset})

    async def pause(self, places: Sequence[TopicPartition] | None) -> None:
        """Deliver nothing from these partitions, or from all, until `resume`. The caller keeps what it has taken."""
        await self.start()
        self._reading.put_back(self.delivered.come_back())
        for reader in self._readers(places).values():
            self._reading.pause(reader)

    async def resume(self, places: Sequence[TopicPartition] | None) -> None:
        await self.start()
        for reader in self._readers(places).values():
            self._reading.resume(reader)

    async def lag(self, timeout_s: float) -> dict[TopicPartition, int]:
        """Return the number of offsets between each position and the current end of its partition."""
        await self.start()
        places = dict.fromkeys(self._reading.readers, LATEST)
        ends = await ask_partitions(self._asking, places, requests.list_offsets, Deadline(timeout_s))
        positions = {where: self.position(where) for where in ends}
        return {where: max(0, ends[where].offset - at) for where, at in positions.items() if at is not None}

    def _readers(self, places: Sequence[TopicPartition] | None) -> dict[TopicPartition, PartitionReader]:
        """Return the readers of these partitions, or all.

        Raises UNKNOWN_TOPIC_OR_PARTITION for a partition that this consumer does not read.
        """
        readers = self._reading.readers
        for where in places or ():
            if where not in readers:
                read = ", ".join(map(str, self.assignment)) or "no partition at the moment"
                text = f"this consumer does not read {where}; it reads {read}"
                raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return {where: readers[where] for where in (readers if places is None else places)}

    # Committing.

    @property
    def membership(self) -> ConsumerMembership:
        """The group membership; raises INVALID_REQUEST for a consumer without a group."""
        if self._membership is None:
            text = "this consumer has no group to commit offsets to; create it with group='...'"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        return self._membership

    async def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str, timeout_s: float) -> None:
        """Commit these offsets, or the positions after everything the caller has taken."""
        commits = self.membership.commits
        if offsets is None:
            commits.finish(self.delivered.positions())
            offsets = dict(commits.finished)
        await commits.commit(offsets, timeout_s, metadata)

    # Health.

    def health(self) -> Health:
        member = self._membership
        trouble = self._reading.trouble
        error = trouble.error if trouble is not None else member.heartbeats.trouble if member is not None else None
        reason = "" if error is None else str(error)
        if member is not None:
            is_waiting = self.doing is ConsumerActivity.WAITING_FOR_PARTITIONS
            reason = reason or member.topics.reason(is_waiting=is_waiting)
        if self._reading.missing_topics:
            reason = reason or f"these topics do not exist any more: {', '.join(self._reading.missing_topics)}"
        since_s = self._since_s
        if trouble is not None and self.doing is ConsumerActivity.UNREACHABLE:
            since_s = trouble.failing_since_s
        doing, for_s = self.doing, self._loop.time() - since_s
        connections = self._asking.cluster.health()
        if doing not in _NEEDS_NO_BROKER and not connections.is_reachable:
            doing, for_s, reason = ConsumerActivity.UNREACHABLE, connections.since_s, reason or connections.reason
        return Health(
            doing,
            for_s,
            reason,
            self.assignment,
            self._reading.buffered_bytes,
            None if member is None else self._loop.time() - member.heartbeats.answered_s,
            member is not None and member.heartbeats.is_given_up,
        )

    def _do(self, doing: ConsumerActivity) -> None:
        if doing is not self.doing:
            self.doing = doing
            self._since_s = self._loop.time()
            if self._notice is not None:
                self._notice()

    def _waiting_for(self) -> ConsumerActivity:
        member = self._membership
        readers = self._reading.readers.values()
        if self._reading.trouble is not None or (member is not None and member.heartbeats.trouble is not None):
            return ConsumerActivity.UNREACHABLE
        if member is not None and member.core.epoch <= 0:
            return ConsumerActivity.JOINING
        if not readers:
            return ConsumerActivity.WAITING_FOR_PARTITIONS
        if all(reader.feed.is_paused for reader in readers):
            return ConsumerActivity.PAUSED
        behind = any(not 0 <= reader.high_watermark <= reader.feed.offset for reader in readers)
        return ConsumerActivity.FETCHING if behind else ConsumerActivity.NO_DATA
