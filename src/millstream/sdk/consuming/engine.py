"""The consumer below its public classes: plain asyncio code on one event loop.

The caller has three states. It *asks* (it is inside `messages` or `whole`), it has messages *in hand*, or it is being
*told* of a change. Whatever it has in hand counts as finished when it asks again. Changes of what is read are followed,
and finished offsets committed, from when it asks on; when there is a reason to, messages it has not taken yet are taken
back from it, so that it asks soon.

Whoever asks gets an answer in the time it gave. Commits go on in the background. So does following, if it takes longer:
until it is over, which the next who asks waits for, the caller has nothing in hand.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.fetcher import Fetcher, FetcherRules
from millstream.sdk.consuming.group.membership import ConsumerMembership
from millstream.sdk.consuming.health import ConsumerActivity, Health
from millstream.sdk.consuming.options import ConsumerEngineSettings
from millstream.sdk.consuming.partition_reader import COLUMNS_BYTES, PIECE_BYTES, FetchedChunk, PartitionReader
from millstream.sdk.consuming.partition_source import Change, PartitionSource
from millstream.sdk.consuming.standalone import StandaloneSource
from millstream.sdk.consuming.start_positions import StartPositions
from millstream.sdk.metrics import NO_METRICS, count_read
from millstream.sdk.requests import LATEST
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight

T = TypeVar("T")

START_TIMEOUT_S = 30.0
GIVE_BYTES = 8 * 1024 * 1024
"""As much is brought to the caller at once; it opens one portion after the other by itself."""


class PollOutcome(Enum):
    """What came of asking, where it is no change."""

    HERE = "there are messages in hand"
    NOTHING = "the time is over"
    OVER = "there will be no more"


class ConsumerEngine:
    """Made on its event loop. `notice` is called whenever what it is doing may have changed."""

    def __init__(
        self,
        asking: RetryingCaller,
        hand: DeliveredBuffer,
        settings: ConsumerEngineSettings,
        notice: Callable[[], None] | None = None,
    ) -> None:
        self.hand = hand
        self._asking = asking
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        group = settings.group
        rules = FetcherRules(
            settings.prefetch_bytes,
            waits_for_topics=group is not None,
            waits_beyond_end=group is None,
            moves_on=settings.moves_on,
            local_files=settings.local_files,
            caller_reads=hand.reads,
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
                progress=lambda: hand.progress,
                changed=self._changed,
            )
        self._topics = settings.topics
        self._give_bytes = min(GIVE_BYTES, settings.prefetch_bytes // 4)
        self._notice = notice
        self._starting = SharedStart(self._start, "start of a consumer")
        self._following = SingleFlight(self._source.follow, "change of what is read")
        self._deadline: Deadline | None = None
        self._recall: asyncio.TimerHandle | None = None
        self._is_asked = False
        self.doing = ConsumerActivity.STARTING
        self._since_s = self._loop.time()

    # Life.

    async def start(self) -> None:
        """Join the group, or find where to begin; once, and again only after a failure."""
        await self._starting.wait()

    async def _start(self) -> None:
        if not self._topics:
            text = "this consumer was given no topics to read; without any it is good for get() only"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        if self._membership is not None:
            self._do(ConsumerActivity.JOINING)
        await self._source.start(START_TIMEOUT_S)
        self._reading.start()

    async def close(self, *, finish: bool = False) -> None:
        """Leave; `finish` says that the caller is done with what it has in hand."""
        try:
            await self._starting.close()
            await self._following.close()
            self._forget_recall()
            self._source.finish(self.hand.positions() if finish else self.hand.finished())
            self._count_opened()
            self.hand.close()  # Whoever is in the middle of a loop is handed out nothing more.
            await self._source.close()
        finally:
            await self._reading.close()
            self._do(ConsumerActivity.CLOSED)

    # Asking.

    async def messages(self, timeout_s: float | None, *, again: bool = False) -> Change | PollOutcome:
        """Bring messages to the caller's hand; CLIENT_MISUSED when somebody else is asking.

        None waits for ever. After a change the caller has been told of, and where nothing could be made of what was
        brought, `again` goes on with the time that is left. Failures that pass are waited out. Raised is what will not:
        a group or topic that is refused, damaged messages; and a start that failed, now or since the last call.
        """
        if self._is_asked:
            text = "this consumer is being asked already; it is for one task or thread at a time"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        self._is_asked = True
        try:
            self._come_back()
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
        """Whether there was something to bring to the caller's hand."""
        portions: list[FetchedChunk] = []
        size_bytes = 0
        while size_bytes < self._give_bytes:
            portion = self._reading.next_portion()
            if portion is None:
                break
            portions.append(portion)
            size_bytes += len(portion.stored)
        self.hand.give(portions)
        return bool(portions)

    def _come_back(self) -> None:
        """The caller is done with what it took; what it did not take is handed out later."""
        self._forget_recall()
        hand = self.hand
        back = hand.come_back()
        self._reading.piece_bytes = COLUMNS_BYTES if hand.wants_columns else PIECE_BYTES
        positions = hand.positions()
        for where, offset in positions.items():
            reader = self._reading.readers[where]
            reader.handed_offset = offset
            reader.failures = 0
        self._source.finish(positions)
        if hand.damage is not None:
            damaged, error = hand.damage
            back = [portion for portion in back if portion.reader is not damaged.reader]
            self._reading.refetch(damaged, error)
        self._reading.put_back(back)
        self._count_opened()
        hand.give(())
        self._source.caller_is_back()

    def _count_opened(self) -> None:
        opened, self.hand.opened = self.hand.opened, []
        if self._asking.metrics is not NO_METRICS:
            for each in opened:
                count_read(self._asking.metrics, *each)

    def _go(self, doing: ConsumerActivity, told: Change | None = None) -> None:
        """The caller has something to do now."""
        self._source.caller_is_busy(told)
        self._do(doing)
        calls_in_s = self._source.calls_in_s
        if calls_in_s is not None and len(self.hand):
            self._recall = self._loop.call_later(calls_in_s, self._take_back)

    def _take_back(self) -> None:
        """Let the caller come by soon, though it has not taken everything."""
        self._forget_recall()
        self._reading.put_back(self.hand.take_back())
        if len(self.hand):  # It has not begun to take; it will have, next time.
            self._recall = self._loop.call_later(1.0, self._take_back)

    def _forget_recall(self) -> None:
        if self._recall is not None:
            self._recall.cancel()
            self._recall = None

    async def _wait(self) -> None:
        """Until something has changed, or somebody has something to do."""
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
        if self._membership is not None and self._membership.wants_attention and len(self.hand):
            self._take_back()

    # Positions.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self._reading.readers))

    def position(self, where: TopicPartition) -> int | None:
        """Behind what the caller has taken; None for what this consumer does not read."""
        reader = self._reading.readers.get(where)
        return None if reader is None else self.hand.positions().get(where, reader.handed_offset)

    async def seek(self, offsets: StartPositions, places: Sequence[TopicPartition] | None, timeout_s: float) -> None:
        """Go on there; without places, in all partitions."""
        await self.start()
        readers = self._readers(places)
        found = await offsets.find(self._asking, list(readers), Deadline(timeout_s))
        self._reading.put_back(self.hand.come_back())
        for where, offset in found.items():
            self.hand.forget(where)
            self._reading.seek(readers[where], offset)
            self._source.finish({where: offset})

    async def pause(self, places: Sequence[TopicPartition] | None) -> None:
        """Hand out nothing of these, or of all, until they are resumed; what the caller has in hand it keeps."""
        await self.start()
        self._reading.put_back(self.hand.come_back())
        for reader in self._readers(places).values():
            self._reading.pause(reader)

    async def resume(self, places: Sequence[TopicPartition] | None) -> None:
        await self.start()
        for reader in self._readers(places).values():
            self._reading.resume(reader)

    async def lag(self, timeout_s: float) -> dict[TopicPartition, int]:
        """How many offsets lie between each position and the end of its partition now."""
        await self.start()
        places = dict.fromkeys(self._reading.readers, LATEST)
        ends = await self._asking.leaders(places, requests.list_offsets, Deadline(timeout_s))
        positions = {where: self.position(where) for where in ends}
        return {where: max(0, ends[where].offset - at) for where, at in positions.items() if at is not None}

    def _readers(self, places: Sequence[TopicPartition] | None) -> dict[TopicPartition, PartitionReader]:
        """Those of these partitions, or all; UNKNOWN_TOPIC_OR_PARTITION for what this consumer does not read."""
        readers = self._reading.readers
        for where in places or ():
            if where not in readers:
                read = ", ".join(map(str, self.assignment)) or "nothing at the moment"
                text = f"this consumer does not read {where}; it reads {read}"
                raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return {where: readers[where] for where in (readers if places is None else places)}

    # Committing.

    @property
    def membership(self) -> ConsumerMembership:
        """INVALID_REQUEST for a consumer without a group."""
        if self._membership is None:
            text = "this consumer has no group that could keep its position; give it one: group='...'"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        return self._membership

    async def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str, timeout_s: float) -> None:
        """Commit these, or everything the caller has taken."""
        commits = self.membership.commits
        if offsets is None:
            commits.finish(self.hand.positions())
            offsets = dict(commits.finished)
        await commits.commit(offsets, timeout_s, metadata)

    # Health.

    def health(self) -> Health:
        member = self._membership
        trouble = self._reading.trouble
        error = trouble.error if trouble is not None else member.heartbeats.trouble if member is not None else None
        reason = "" if error is None else str(error)
        if member is not None and member.missing and self.doing is ConsumerActivity.WAITING_FOR_PARTITIONS:
            reason = reason or f"there are no such topics yet: {', '.join(member.missing)}"
        since_s = self._since_s
        if trouble is not None and self.doing is ConsumerActivity.UNREACHABLE:
            since_s = trouble.since_s
        return Health(
            self.doing,
            self._loop.time() - since_s,
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
        if all(reader.is_paused for reader in readers):
            return ConsumerActivity.PAUSED
        behind = any(not 0 <= reader.high_watermark <= reader.fetch_offset for reader in readers)
        return ConsumerActivity.FETCHING if behind else ConsumerActivity.NO_DATA
