"""Sends the messages of one push subscription, in small portions, while its window has space.

Data is read only when it can be sent, and is sent at once, from the page cache where possible. So a subscription
buffers no messages. If the peer stops reading, the connection's outbox holds one portion. If the peer stops committing,
it receives no more than its window.

Invariant: each feed is in `_ready` once, or waits for new data of its partition, or is being read from disk.

Guarantee: the subscription wants a turn exactly when a turn could send something. Each event that can change this
requests a turn: new data, a commit, a peer that reads again, a finished read from disk.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from millstream.broker.dispatch.request import DeferredResponse, Work
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.push_channel import PushChannel
from millstream.broker.push.flow_control import AvailableWindow, FlowWindow, SubscriptionFlow
from millstream.broker.push.partition_push import PartitionName, PartitionPush
from millstream.broker.push.round_robin import RoundRobin
from millstream.model.errors import MillstreamError
from millstream.storage.log.log_reader import Stretch
from millstream.wire.subscribe import Delivery, write_delivery

TURN_BYTES = 256 * 1024
"""Maximum bytes that a subscription sends in one turn, unless a single batch is larger."""

TURN_PARTITIONS_MAX = 32
"""Maximum partitions that are read in one turn."""


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
        """`otherwise` is the position that replaces a deleted one: END or BEGINNING, or NOWHERE for an error."""
        self.group_id = group_id
        self.otherwise = otherwise
        self.flow = SubscriptionFlow(window)
        self.feeds: dict[PartitionName, PartitionPush] = {}
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
        """Set the partitions to send. Call this once, before `begin`."""
        self.feeds = {feed.name: feed for feed in feeds}
        self._ready = list(self.feeds.values())

    # StreamingRequest

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
            feed.stop_waiting()
        self._when_over(self)

    # Commits

    def commit(self, offsets: Iterable[tuple[PartitionPush, int]]) -> None:
        """Free the window space of committed messages. A closed partition frees all its outstanding messages."""
        for feed, offset in offsets:
            if self.feeds.get(feed.name) is feed:
                self.flow.committed(feed.flow, feed.flow.position if feed.partition.is_closed else offset)
        self.go_on()

    # Turns

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
        left = limit = self._memory.answer_bytes_max(TURN_BYTES)
        if not limit:
            self._turns.add_later(self)
            return 0
        rows: list[Delivery] = []
        error: MillstreamError | None = None
        for _ in range(min(len(self._ready), TURN_PARTITIONS_MAX)):
            room = self.flow.room()
            if room is None or left <= 0:
                break
            feed, room = self._ready[0], AvailableWindow(room.messages, min(left, room.size_bytes))
            try:
                found = feed.read(room)
            except MillstreamError as refusal:
                error = refusal
                rows.append(self._end_feed(self._ready.pop(0), refusal))
                continue
            if found is None:
                if not rows:
                    self._read_from_disk(self._ready.pop(0), room)
                break
            data, next_offset = found
            if not data:
                self._ready.pop(0).wait(partial(self._woken, feed))
            elif (rows and len(data) > left) or not self.flow.admits(
                next_offset - feed.flow.position, size_bytes=len(data)
            ):
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
        size_bytes = len(data)
        feed.partition.traffic.fetched(size_bytes, messages=next_offset - feed.flow.position)
        self.flow.sent(feed.flow, next_offset, size_bytes)
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

    def _woken(self, feed: PartitionPush) -> None:
        """Mark a feed with new data as ready. It is read in a later turn, since the caller must finish its append."""
        self._ready.append(feed)
        assert len(self._ready) + self._is_reading <= len(self.feeds), "a feed is ready, or waits, or is being read"
        self.go_on()

    def _end_feed(self, feed: PartitionPush, error: MillstreamError) -> Delivery:
        """Remove a feed, free its window space and return the row that reports the error."""
        del self.feeds[feed.name]
        self.flow.committed(feed.flow, feed.flow.position)
        return feed.row(error)

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
                error = refusal
                rows.append(self._end_feed(feed, refusal))
        else:
            if self.is_over:
                return
            data, next_offset = found
            if data and self.flow.admits(next_offset - feed.flow.position, size_bytes=len(data)):
                self._ready.append(feed)
                rows.append(self._sent(feed, found))
            else:
                self._ready.insert(0, feed)
        finally:
            self._is_reading = False
        assert len(self._ready) <= len(self.feeds), "a feed is ready, or waits, or is being read"
        if rows:
            self._deliver(rows, error)
        self.go_on()
