"""Implements the client's reads, below its public methods, as asyncio code on one event loop; it tracks no positions.

- Messages that were delivered a moment ago are read from memory (`recent_cache`).
- Older messages are fetched (`backlog_fetch`).
- A read at the log end, or after it, waits for a watch (`partition_watch`). All waiting reads of a partition share one
  watch, and all watches at a broker share one connection (`watch_connection`).

So a waiting read is one future and one heap entry, and costs the brokers nothing.

A watch reads the topic that its first subscription has named by id. If that topic is deleted and created again, the
waiting reads raise, and later reads get a watch of the new topic.

Invariant: each watch in `_watches` has a connection, or it is in `_unopened`, where the one finder task opens it when
its feed is due. Guarantee: a read that waits for a watch is woken when the watch fails.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.model.waiters import Cancel
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.feed.partition_feed import FeedRules
from millstream.sdk.time_arguments import Times
from millstream.sdk.watching.backlog_fetch import BacklogFetch, ReadResults
from millstream.sdk.watching.partition_watch import PartitionWatch
from millstream.sdk.watching.read_positions import Position, find_offsets
from millstream.sdk.watching.read_result import WatchLimits, share_out
from millstream.sdk.watching.recent_cache import RecentCache
from millstream.sdk.watching.watch_connection import WatchConnection

LINGER_S = 10.0
"""The time that a watch is kept after its last use, because a reader usually polls again."""

TICK_S = 1.0
SETTLE_TICKS = 5
CHECK_TICKS = 15

_RULES = FeedRules(missing_attempts=1)
"""A missing topic is reported to waiting reads at once."""

_log = logging.getLogger("millstream.sdk.watching")


class WatchEngine:
    def __init__(self, asking: RetryingCaller, times: Times, cache: RecentCache | None = None) -> None:
        self._asking = asking
        self._times = times
        self._cluster = asking.cluster
        self._loop = asyncio.get_running_loop()
        self._cache = cache or RecentCache()
        self._backlog = BacklogFetch(asking)
        self._watches: OrderedDict[TopicPartition, PartitionWatch] = OrderedDict()
        """The watches in order of their last use, the most recent last."""
        self._links: dict[Address, WatchConnection] = {}
        self._feeds = FeedSet(asking, _RULES)
        self._unopened: dict[PartitionWatch, None] = {}
        self._finding: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._ticks = 0

    async def close(self) -> None:
        """End all watches; waiting reads raise CLIENT_CLOSED."""
        for watch in list(self._watches.values()):
            self._failed(watch, MillstreamError(ErrorCode.CLIENT_CLOSED, "the client was closed"))
        if self._ticking is not None:
            self._ticking.cancel()
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        await self._backlog.close()
        for link in self._links.values():
            await link.close()

    # Reading.

    async def read(
        self, places: Mapping[TopicPartition, Position], limits: WatchLimits, wait_s: float, timeout_s: float
    ) -> ReadResults:
        """Return a result for each position; if none has messages, wait up to `wait_s` for the first ones.

        The results have no gaps and no duplicates, across reconnects and leader changes. Retriable failures are
        retried for up to `timeout_s` in addition to the wait. Raises OFFSET_OUT_OF_RANGE for an offset before the log
        start; a read of an offset after the log end waits.
        """
        until, deadline = Deadline(wait_s), Deadline(wait_s + timeout_s)
        offsets = self._turned(await find_offsets(self._asking, self._times, places, deadline))
        attempts: Attempts | None = None
        while True:
            is_over = until.is_over
            found = await self._look(offsets, limits, deadline, waits=wait_s > 0)
            ends = {where: found[where].next_offset for where in offsets}
            if any(result.messages for result in found.values()) or (is_over and ends == offsets):
                shared = share_out({where: found[where] for where in offsets}, limits)
                return {where: shared[where] for where in places}
            if ends != offsets:
                offsets = ends  # These offsets hold only removed messages and control records.
                continue
            del found, ends  # A waiting read holds as little memory as possible.
            if await self._wait(offsets, until):
                attempts = None
            elif attempts is None:
                attempts = Attempts(self._asking.entropy, until)
            else:
                await attempts.pause()  # The watch knows of messages that the fetch did not return yet.

    def _turned(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Rotate the partitions randomly: if the limits do not allow all, the first ones get the most."""
        if len(places) == 1:
            return dict(places)
        rows = list(places.items())
        first = int.from_bytes(self._asking.entropy.token(4), "big") % len(rows)
        return dict(rows[first:] + rows[:first])

    async def _look(
        self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline, *, waits: bool
    ) -> ReadResults:
        """Return results from the cache, or fetch them. A waiting read sends no request if the watch is at the end."""
        found: ReadResults = {}
        unknown: dict[TopicPartition, int] = {}
        for where, offset in offsets.items():
            watch = self._watches.get(where)
            result = None if watch is None else watch.take(offset, limits)
            if result is None and waits and watch is not None and watch.is_live and offset >= watch.position:
                result = watch.nothing(offset)
            if result is None or watch is None:
                unknown[where] = offset
            else:
                found[where] = result
                self._use(watch)
        if unknown:
            fetch = self._backlog.share if waits else self._backlog.fetch
            found |= await fetch(unknown, limits, deadline)
        return found

    # Waiting.

    async def _wait(self, offsets: Mapping[TopicPartition, int], until: Deadline) -> bool:
        """Wait until a partition has news or the time is over; return false at once if one has news already.

        Raises the error of a watch that failed.
        """
        for where, offset in offsets.items():
            self._watch(where, offset)
        waits = [(self._watches.get(where), offset) for where, offset in offsets.items()]
        news: asyncio.Future[None] = self._loop.create_future()
        wake = partial(_wake, news)
        cancels: list[Cancel] = []
        try:
            for watch, offset in waits:
                if watch is None or (watch.is_live and offset < watch.position):
                    return False
                is_found = watch.source is not None or (watch in self._unopened and self._finding is not None)
                assert is_found, "a watch has a connection, or the finder opens one"
                cancels.append(watch.wait(offset, wake))
            timer = self._loop.call_later(until.left_s, wake)
            cancels.append(timer.cancel)
            await news
        finally:
            for cancel in cancels:
                cancel()
        for watch, _ in waits:
            if watch is not None and watch.failure is not None:
                raise MillstreamError(watch.failure.code, watch.failure.detail)
        return True

    def _watch(self, where: TopicPartition, offset: int) -> None:
        """Make sure that a watch for a read at this offset exists."""
        watch = self._watches.get(where)
        if watch is not None and watch.is_overtaken(offset):
            self._forget(watch)  # A new watch starts at the log end; no read needs the messages in between.
        if where not in self._watches:
            feed = self._feeds.add(where, 0, NO_TOPIC_ID)
            watch = self._watches[where] = PartitionWatch(feed, self._cache, self._loop.time())
            self._look_for(watch)
            if self._ticking is None:
                self._ticking = self._loop.call_later(TICK_S, self._tick)
        self._use(self._watches[where])

    def _use(self, watch: PartitionWatch) -> None:
        if self._watches.get(watch.where) is watch:
            watch.used_s = self._loop.time()
            self._watches.move_to_end(watch.where)

    def _link(self, address: Address) -> WatchConnection:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = WatchConnection(self._cluster, address, self._lost)
        return link

    # Watches.

    def _failed(self, watch: PartitionWatch, error: MillstreamError) -> None:
        self._forget(watch)
        watch.fail(error)

    def _lost(self, watch: PartitionWatch, error: MillstreamError) -> None:
        """Look for a new broker: the old one is unreachable or not the leader any more. Waiting reads keep waiting."""
        _log.debug('watch lost topic=%s partition=%d error="%s"', *watch.where, error)
        if error.code is ErrorCode.UNKNOWN_TOPIC_ID and watch.feed.topic_id == NO_TOPIC_ID:
            text = f"{watch.where}: the cached metadata is older than the topic"
            error = MillstreamError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        watch.lose()
        self._feeds.source_lost([watch.where], error, watch.opened_s)
        if watch.feed.gives_up:
            self._failed(watch, error)
            return
        if self._finding is None:
            _log.info('watches lost, will be reopened error="%s"', error)
        self._look_for(watch)

    def _look_for(self, watch: PartitionWatch) -> None:
        self._unopened[watch] = None
        if self._finding is None:
            self._finding = self._loop.create_task(self._find(), name="finding what is watched")

    def _forget(self, watch: PartitionWatch) -> None:
        self._watches.pop(watch.where, None)
        self._unopened.pop(watch, None)
        self._feeds.remove(watch.where)
        if watch.source is not None:
            watch.source.end()
        watch.lose()

    async def _find(self) -> None:
        """Run the finder: look up leaders and open watches until none is left in `_unopened`."""
        try:
            while self._unopened:
                self._feeds.look()
                await self._feeds.find_leaders()
                for watch in list(self._unopened):
                    feed = watch.feed
                    if feed.gives_up and feed.error is not None:
                        self._failed(watch, feed.error)
                    elif feed.leader is not None:
                        del self._unopened[watch]
                        self._link(feed.leader).open(watch)
                if self._unopened and self._feeds.due_s is not None:
                    await asyncio.sleep(max(0.0, self._feeds.due_s - self._loop.time()))
        finally:
            self._finding = None

    def _tick(self) -> None:
        """Do the periodic work, once a second while there are watches."""
        now_s = self._loop.time()
        self._ticks += 1
        self._cache.expire(now_s)
        self._end_unused(now_s)
        for link in self._links.values():
            if not self._watches:
                link.rest()
                continue
            if self._ticks % SETTLE_TICKS == 0:
                link.settle()
            if self._ticks % CHECK_TICKS == 0:
                link.check()
        self._ticking = self._loop.call_later(TICK_S, self._tick) if self._watches else None

    def _end_unused(self, now_s: float) -> None:
        while self._watches:
            watch = next(iter(self._watches.values()))
            if watch.used_s + LINGER_S > now_s:
                return
            if watch.waiting:
                self._use(watch)
            else:
                self._forget(watch)


def _wake(news: "asyncio.Future[None]") -> None:
    if not news.done():
        news.set_result(None)
