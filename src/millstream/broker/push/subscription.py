"""One subscription: partitions with a place in each, read a bite at a time while there is room in the window.

Nothing is read before it can be sent, and what is read is sent at once: parts of files where the log lends them. So a
subscription holds no messages; a peer that stops reading has one bite in its connection's outbox, and one that stops
committing is sent no more than its window.

Invariants: each feed is in `_ready`, or waits for news of its partition, or is the one being read from disk. A turn is
wanted exactly when a turn could bring something; whatever changes that (news, a commit, a peer that reads again, a
finished read) asks for one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from millstream.broker.dispatch.request import DeferredResponse, Work
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.push_channel import PushChannel
from millstream.broker.push.flow_control import AvailableWindow, FlowWindow, PartitionFlow, SubscriptionFlow
from millstream.broker.push.round_robin import RoundRobin
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.waiters import Cancel
from millstream.partition.partition import Partition
from millstream.partition.raw_reads import read_stretch, read_stretch_cold
from millstream.storage.log.log_reader import Stretch
from millstream.wire.subscribe import BEGINNING, END, Delivery, write_delivery

BITE_BYTES = 256 * 1024
"""What a subscription is given in one turn, unless a single batch is larger."""

LOOKS_MAX = 32
"""Partitions that are looked at in one turn."""

Place = tuple[str, int]


def _nothing() -> None:
    """What there is to cancel where nothing is waited for."""


class PartitionPush:
    """One partition of a subscription."""

    __slots__ = ("cancel", "lane", "leader_epoch", "partition")

    def __init__(self, partition: Partition, position: int) -> None:
        self.partition = partition
        self.lane = PartitionFlow(position)
        self.leader_epoch = partition.leader_epoch
        self.cancel: Cancel = _nothing

    @property
    def place(self) -> Place:
        return self.partition.topic, self.partition.number

    def read(self, room: AvailableWindow) -> Stretch | None:
        self.partition.check_leader_epoch(self.leader_epoch)
        return read_stretch(self.partition, self.lane.position, room.size_bytes, room.messages)

    async def read_cold(self, room: AvailableWindow) -> Stretch:
        return await read_stretch_cold(self.partition, self.lane.position, room.size_bytes, room.messages)

    def row(self, error: MillstreamError | None = None) -> Delivery:
        """Where this feed is, without records."""
        partition, at = self.partition, self.lane.position
        return Delivery(
            *self.place,
            error.code.number if error else 0,
            self.leader_epoch,
            at,
            at,
            partition.high_watermark,
            partition.log.start_offset,
            error.detail if error else None,
        )


class PushSubscription:
    __slots__ = (
        "_correlation_id",
        "_is_begun",
        "_is_reading",
        "_memory",
        "_push_channel",
        "_ready",
        "_turns",
        "_when_over",
        "feeds",
        "flow",
        "group_id",
        "is_over",
        "otherwise",
    )

    def __init__(
        self,
        push_channel: PushChannel,
        correlation_id: int,
        window: FlowWindow,
        *,
        group_id: str | None,
        otherwise: int,
        turns: RoundRobin,
        memory: MemoryLimits,
        when_over: Callable[["PushSubscription"], None],
    ) -> None:
        """`otherwise` is where to go on when a position is gone: END, BEGINNING or NOWHERE."""
        self.group_id = group_id
        self.otherwise = otherwise
        self.flow = SubscriptionFlow(window)
        self.feeds: dict[Place, PartitionPush] = {}
        self._ready: list[PartitionPush] = []
        self._push_channel = push_channel
        self._correlation_id = correlation_id
        self._turns = turns
        self._memory = memory
        self._when_over = when_over
        self._is_begun = False
        self._is_reading = False
        self.is_over = False

    def __repr__(self) -> str:
        return (
            f"<Subscription {self._correlation_id} of {len(self.feeds)} partitions, {self.flow.messages} outstanding>"
        )

    def add(self, feeds: Iterable[PartitionPush]) -> None:
        """What is to be sent; before it begins."""
        self.feeds = {feed.place: feed for feed in feeds}
        self._ready = list(self.feeds.values())

    # As one who stands on a line.

    def begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self.go_on()

    def go_on(self) -> None:
        if self.wants_turn:
            self._turns.add(self)
        elif self._ready and self._push_channel.is_paused:
            self._push_channel.hold(self)

    def end(self, error: MillstreamError) -> None:
        if not self.is_over:
            self.drop()
            self._push([], error)

    def drop(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._push_channel.open_requests.pop(self._correlation_id, None)
        self._ready.clear()
        for feed in self.feeds.values():
            feed.cancel()
        self._when_over(self)

    # What the reader has done with.

    def commit(self, offsets: Iterable[tuple[PartitionPush, int]]) -> None:
        """Make room; a partition that is gone makes room for all that was sent of it."""
        for feed, offset in offsets:
            if self.feeds.get(feed.place) is feed:
                self.flow.committed(feed.lane, feed.lane.position if feed.partition.is_closed else offset)
        self.go_on()

    # Turns.

    @property
    def wants_turn(self) -> bool:
        return (
            self._ready != []
            and self._is_begun
            and not self._is_reading
            and self.flow.is_open
            and not self._push_channel.is_paused
        )

    def take_turn(self) -> int:
        if not self.wants_turn:
            self.go_on()
            return 0
        left = limit = self._memory.answer_bytes_max(BITE_BYTES)
        if not limit:
            self._turns.add_later(self)
            return 0
        rows: list[Delivery] = []
        error: MillstreamError | None = None
        for _ in range(min(len(self._ready), LOOKS_MAX)):
            room = self.flow.room()
            if room is None or left <= 0:
                break
            feed, room = self._ready[0], AvailableWindow(room.messages, min(left, room.size_bytes))
            try:
                found = feed.read(room)
            except MillstreamError as refusal:
                self._ready.pop(0)
                error = self._refused(feed, refusal, rows)
                continue
            if found is None:
                if not rows:
                    self._read_from_disk(self._ready.pop(0), room)
                break
            data, next_offset = found
            if not data:
                self._wait(self._ready.pop(0))
            elif (rows and len(data) > left) or not self.flow.admits(next_offset - feed.lane.position, len(data)):
                break
            else:
                self._ready.append(self._ready.pop(0))
                rows.append(self._sent(feed, found))
                left -= len(data)
        if rows:
            self._deliver(rows, error)
        return limit - left

    def fail(self, error: BaseException) -> None:
        self._push_channel.fail(error)

    def _sent(self, feed: PartitionPush, stretch: Stretch) -> Delivery:
        data, next_offset = stretch
        row = feed.row()._replace(next_offset=next_offset, records=data)
        self.flow.sent(feed.lane, next_offset, len(data))
        return row

    def _deliver(self, rows: Sequence[Delivery], error: MillstreamError | None) -> None:
        if self.feeds:
            self._push(rows)
        else:
            self.drop()
            self._push(rows, error)

    def _push(self, rows: Sequence[Delivery], error: MillstreamError | None = None) -> None:
        number, text = (error.code.number, error.detail) if error else (0, None)
        self._push_channel.push(self._correlation_id, True, write_delivery(rows, number, text))
        if self._push_channel.is_paused:
            self._push_channel.hold(self)

    def _wait(self, feed: PartitionPush) -> None:
        feed.cancel = feed.partition.wait(feed.lane.position, partial(self._woken, feed))

    def _woken(self, feed: PartitionPush) -> None:
        """There is news. It is looked at when its turn comes: whoever brings it has something else to finish."""
        self._ready.append(feed)
        self.go_on()

    def _refused(self, feed: PartitionPush, error: MillstreamError, rows: list[Delivery]) -> MillstreamError:
        """A position that is not reached yet is waited for, one that is gone is left, and anything else ends a feed."""
        partition, lane = feed.partition, feed.lane
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and lane.position > partition.log.end_offset:
            self._wait(feed)
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.otherwise in (END, BEGINNING):
            lane.position = partition.high_watermark if self.otherwise == END else partition.log.start_offset
            self._ready.append(feed)
        else:
            rows.append(feed.row(error))
            del self.feeds[feed.place]
            self.flow.committed(lane, lane.position)
        return error

    def _read_from_disk(self, feed: PartitionPush, room: AvailableWindow) -> None:
        self._is_reading = True
        self._push_channel.start(Work(self._read(feed, room)), DeferredResponse())

    async def _read(self, feed: PartitionPush, room: AvailableWindow) -> None:
        rows: list[Delivery] = []
        error: MillstreamError | None = None
        try:
            found = await feed.read_cold(room)
        except MillstreamError as refusal:
            if not self.is_over:
                error = self._refused(feed, refusal, rows)
        else:
            if self.is_over:
                return
            data, next_offset = found
            if data and self.flow.admits(next_offset - feed.lane.position, len(data)):
                self._ready.append(feed)
                rows.append(self._sent(feed, found))
            else:
                self._ready.insert(0, feed)
        finally:
            self._is_reading = False
        if rows:
            self._deliver(rows, error)
        self.go_on()
