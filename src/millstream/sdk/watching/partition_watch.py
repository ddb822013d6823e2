"""Watches one partition by push delivery: its position, its waiting reads and its recent messages.

A watch is live while a broker pushes new messages to it. `position` is then the offset of the next message. Reads that
wait at `position` or after it are woken when their message arrives. While the watch is not live (before it is opened,
or while its leader is looked up), reads keep waiting. When it becomes live again at another position, all reads below
that position are woken and fetch the messages that the watch has missed.

Invariants: the recent messages end at `position`. No read waits below the `position` of a live watch.
"""

from collections.abc import Callable
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.waiters import Cancel, Waiters
from millstream.records.message import Message
from millstream.sdk.feed.batch_opening import is_heavy
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.watching.read_result import ReadResult, WatchLimits
from millstream.sdk.watching.recent_cache import RecentCache, RecentChunk, RecentMessages
from millstream.wire.subscribe import Delivery

NOWHERE = -1


class WatchSource(Protocol):
    """The source of a watch's messages: a subscription at a broker."""

    @property
    def is_full(self) -> bool:
        """True if the buffer is full: the broker must not send more until a read waits."""
        ...

    def want(self) -> None:
        """Allow the broker to send more, because a read waits for messages."""
        ...

    def end(self) -> None:
        """End the subscription: no read needs it any more."""
        ...


class PartitionWatch:
    __slots__ = (
        "_cache",
        "_recent",
        "_waiters",
        "failure",
        "feed",
        "high_watermark",
        "is_live",
        "log_start_offset",
        "opened_s",
        "source",
        "used_s",
    )

    def __init__(self, feed: PartitionFeed, cache: RecentCache, now_s: float) -> None:
        self.feed = feed
        """The feed of the partition; its offset is the watch's position while the watch is live."""
        self.is_live = False
        self.log_start_offset = 0
        self.high_watermark = 0
        self.source: WatchSource | None = None
        """None while its leader is looked up."""
        self.opened_s = now_s
        """The time at which it got its source."""
        self.used_s = now_s
        """The time of its last use by a read."""
        self.failure: MillstreamError | None = None
        """The error with which the watch ended; None if it did not fail."""
        self._cache = cache
        self._recent = RecentMessages(feed.where)
        self._waiters = Waiters()

    def __repr__(self) -> str:
        return f"<Watch of {self.where} at {self.position}, {self.waiting} waiting>"

    @property
    def where(self) -> TopicPartition:
        return self.feed.where

    @property
    def position(self) -> int:
        """The offset of the next message of this watch; NOWHERE while the watch is not live."""
        return self.feed.offset if self.is_live else NOWHERE

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def is_overtaken(self, offset: int) -> bool:
        """True if a full window stopped the watch before this offset, and no read waits for the messages between."""
        is_held = self.source is not None and self.source.is_full
        return is_held and self.is_live and self.position < offset and not self.waiting

    def wait(self, offset: int, wake: Callable[[], None]) -> Cancel:
        """Call `wake` when there is a message at `offset` or after it, or when the watch has failed."""
        assert not self.is_live or offset >= self.position, "a read does not wait for messages that exist"
        cancel = self._waiters.add(offset, wake)
        if self.source is not None:
            self.source.want()
        return cancel

    def take(self, offset: int, limits: WatchLimits) -> ReadResult | None:
        """Return cached messages from `offset` on, at least as many as the limits allow; None if it is not cached."""
        taken = self._cache.take(self._recent, offset, limits)
        return None if taken is None else self._result(*taken)

    def nothing(self, offset: int) -> ReadResult:
        """Return a result without messages, for an offset at the watch's position or after it."""
        return self._result([], offset)

    def _result(self, messages: list[Message], next_offset: int) -> ReadResult:
        return ReadResult(*self.where, messages, next_offset, self.log_start_offset, self.high_watermark)

    # Events of its source.

    def open(self, source: WatchSource, now_s: float) -> None:
        """Set the source, which subscribes from the log end on."""
        self.source = source
        self.opened_s = now_s

    def deliver(self, row: Delivery, now_s: float) -> None:
        """Add delivered messages and wake the reads that they pass. The first delivery sets the position."""
        if row.next_offset < self.position:
            return  # The answer to Subscribe, which arrived after the first delivery.
        if row.position != self.position:
            self._cache.clear(self._recent)
            self.feed.seek(row.position)
            self.feed.bind()
            self.is_live = True
        if row.records:
            assert isinstance(row.records, memoryview), "a delivery's records are a view of its frame"
            if is_heavy(row.records):
                self._cache.clear(self._recent)  # Reads fetch it; a worker unpacks it.
            else:
                chunk = FetchedChunk(
                    self.feed,
                    row.position,
                    next_offset=row.next_offset,
                    stored=row.records,
                    high_watermark=row.high_watermark,
                )
                self._cache.put(self._recent, RecentChunk(chunk, now_s))
        self.feed.served_under(row.leader_epoch)
        self.feed.advance(row.next_offset)
        self.log_start_offset = row.log_start_offset
        self.high_watermark = max(row.high_watermark, row.next_offset)
        self._waiters.wake_below(self.position)

    def lose(self) -> None:
        """Drop the source and the cached messages: without a source they may become outdated."""
        self.source = None
        self.is_live = False
        self._cache.clear(self._recent)

    def fail(self, error: MillstreamError) -> None:
        """End the watch with an error and wake all its reads."""
        self.failure = error
        self.lose()
        self._waiters.wake_all()
