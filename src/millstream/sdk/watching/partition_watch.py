"""One partition that is watched: who waits for it, how far it is known, and what came last.

A watch is live while a broker sends it what is written. `position` is then where its next messages begin: all before
it is there, and whoever waits at it, or beyond, is woken when it comes. While it is not live (before it is opened, and
while its broker is looked for) everybody waits on. When it is live again, at another position, those are woken that it
has passed: they read what it has not seen.

Invariants: the shelf ends at `position`. A live watch has nobody waiting below `position`.
"""

from collections.abc import Callable
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.waiters import Cancel, Waiters
from millstream.records.message import Message
from millstream.sdk.consuming.batch_opening import is_heavy
from millstream.sdk.watching.read_result import ReadResult, WatchLimits
from millstream.sdk.watching.recent_cache import RecentCache, RecentChunk, RecentMessages
from millstream.wire.subscribe import Delivery

NOWHERE = -1


class WatchSource(Protocol):
    """Where a watch has its messages from."""

    @property
    def is_full(self) -> bool:
        """Whether it holds back what comes until somebody waits for it."""
        ...

    def want(self) -> None:
        """Somebody waits for what comes next."""
        ...

    def end(self) -> None:
        """Nobody wants it any more."""
        ...


class PartitionWatch:
    __slots__ = (
        "_cache",
        "_shelf",
        "_waiters",
        "failure",
        "feed",
        "high_watermark",
        "log_start_offset",
        "position",
        "used_s",
        "where",
    )

    def __init__(self, where: TopicPartition, cache: RecentCache, now_s: float) -> None:
        self.where = where
        self.position = NOWHERE
        self.log_start_offset = 0
        self.high_watermark = 0
        self.feed: WatchSource | None = None
        """None while its broker is looked for."""
        self.used_s = now_s
        """When somebody last had something of it."""
        self.failure: MillstreamError | None = None
        """Why it is over, where that was nobody's wish."""
        self._cache = cache
        self._shelf = RecentMessages(where)
        self._waiters = Waiters()

    def __repr__(self) -> str:
        return f"<Watch of {self.where} at {self.position}, {self.waiting} waiting>"

    @property
    def is_live(self) -> bool:
        return self.position >= 0

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def is_overtaken(self, offset: int) -> bool:
        """Whether it has stopped before this offset, with nobody waiting for what lies between."""
        is_held = self.feed is not None and self.feed.is_full
        return is_held and self.is_live and self.position < offset and not self.waiting

    def wait(self, offset: int, wake: Callable[[], None]) -> Cancel:
        """Call `wake` when there is something at `offset` or behind it, or when the watch has failed."""
        assert not self.is_live or offset >= self.position, "what is there is not waited for"
        cancel = self._waiters.add(offset, wake)
        if self.feed is not None:
            self.feed.want()
        return cancel

    def take(self, offset: int, limits: WatchLimits) -> ReadResult | None:
        """What is at hand from `offset` on, at least as much as the limits allow; None when nothing is."""
        taken = self._cache.take(self._shelf, offset, limits)
        return None if taken is None else self._portion(*taken)

    def nothing(self, offset: int) -> ReadResult:
        """What there is at its position, and beyond."""
        return self._portion([], offset)

    def _portion(self, messages: list[Message], next_offset: int) -> ReadResult:
        return ReadResult(*self.where, messages, next_offset, self.log_start_offset, self.high_watermark)

    # What its feed tells.

    def deliver(self, row: Delivery, now_s: float) -> None:
        """What came; the first says where it begins. Whoever is passed thereby is woken."""
        if row.next_offset < self.position:
            return  # The answer to subscribing, overtaken by the first delivery.
        if row.position != self.position:
            self._cache.clear(self._shelf)
        if row.records:
            assert isinstance(row.records, memoryview), "a frame is read as it came"
            if is_heavy(row.records):
                self._cache.clear(self._shelf)  # Who wants it fetches it, and has it unpacked by a worker.
            else:
                self._cache.put(self._shelf, RecentChunk(row.position, row.next_offset, row.records, now_s))
        self.position = row.next_offset
        self.log_start_offset = row.log_start_offset
        self.high_watermark = max(row.high_watermark, row.next_offset)
        self._waiters.wake_below(self.position)

    def lose(self) -> None:
        """Nobody sends anything for now, so nobody vouches for what it has."""
        self.feed = None
        self.position = NOWHERE
        self._cache.clear(self._shelf)

    def fail(self, error: MillstreamError) -> None:
        """It is over; who waits is told."""
        self.failure = error
        self.lose()
        self._waiters.wake_all()
