"""Reads below the client's public methods: plain asyncio code on one event loop, which keeps nobody's place.

What was delivered a moment ago is taken from memory. What lies further back is fetched (see `backlog_fetch`). Who is at
the end, or beyond it, waits for a watch (see `partition_watch`): all who wait for a partition share one, and all
watches at a broker one connection (see `watch_connection`). So whoever waits is a future and an entry in a heap, and
costs the brokers nothing.

Invariant: a watch of `_watches` is at a link, or in `_homeless` and looked after by the one task that finds out who
leads its partition. Whoever waits for another is woken.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.waiters import Cancel
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.time_arguments import Times
from millstream.sdk.watching.backlog_fetch import BacklogFetch, Portions
from millstream.sdk.watching.partition_watch import PartitionWatch
from millstream.sdk.watching.read_positions import Position, find_offsets
from millstream.sdk.watching.read_result import WatchLimits, share_out
from millstream.sdk.watching.recent_cache import RecentCache
from millstream.sdk.watching.watch_connection import LinkOwner, WatchConnection, is_final

LINGER_S = 10.0
"""How long a partition is watched after the last who wanted it: mostly, there is a next poll."""

TICK_S = 1.0
SETTLE_TICKS = 5
CHECK_TICKS = 15
LOOK_UP_S = 10.0
TOPICS_PER_REQUEST = 1_000
_STABLE_S = 5.0
"""What has gone well for so long does not count as a repetition when it fails."""
_EVER_S = 1e9

_log = logging.getLogger("millstream.sdk.watching")


class WatchEngine:
    def __init__(self, asking: RetryingCaller, times: Times, cache: RecentCache | None = None) -> None:
        self._asking = asking
        self._times = times
        self._cluster = asking.cluster
        self._loop = asyncio.get_running_loop()
        self._cache = cache or RecentCache()
        self._behind = BacklogFetch(asking)
        self._watches: OrderedDict[TopicPartition, PartitionWatch] = OrderedDict()
        """Those that were used last come last."""
        self._links: dict[Address, WatchConnection] = {}
        self._owner = LinkOwner(self._lost, self._failed)
        self._homeless: dict[PartitionWatch, None] = {}
        self._finding: asyncio.Task[None] | None = None
        self._attempts: Attempts | None = None
        self._stable_at_s = 0.0
        self._ticking: asyncio.TimerHandle | None = None
        self._ticks = 0

    async def close(self) -> None:
        """Who still waits is told that the client was closed."""
        for watch in list(self._watches.values()):
            self._failed(watch, MillstreamError(ErrorCode.CLIENT_CLOSED, "the client was closed"))
        if self._ticking is not None:
            self._ticking.cancel()
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        await self._behind.close()
        for link in self._links.values():
            await link.close()

    # Reading.

    async def read(
        self, places: Mapping[TopicPartition, Position], limits: WatchLimits, wait_s: float, timeout_s: float
    ) -> Portions:
        """What is there at these places, or what comes first at any of them within the wait; a portion for each.

        Nothing is said twice and nothing left out, whatever becomes of brokers and connections meanwhile: failures
        that may pass are waited out, for up to `timeout_s` beside the wait. OFFSET_OUT_OF_RANGE for a place before the
        beginning; one that is not reached is waited for.
        """
        until, deadline = Deadline(wait_s), Deadline(wait_s + timeout_s)
        offsets = self._turned(await find_offsets(self._asking, self._times, places, deadline))
        attempts: Attempts | None = None
        while True:
            is_over = until.is_over
            found = await self._look(offsets, limits, deadline, waits=wait_s > 0)
            ends = {where: found[where].next_offset for where in offsets}
            if any(portion.messages for portion in found.values()) or (is_over and ends == offsets):
                shared = share_out({where: found[where] for where in offsets}, limits)
                return {where: shared[where] for where in places}
            if ends != offsets:
                offsets = ends  # Only removed messages and marks lay there.
                continue
            del found, ends  # Who waits holds as little as can be.
            if await self._wait(offsets, until, deadline):
                attempts = None
            elif attempts is None:
                attempts = Attempts(self._asking.entropy, until)
            else:
                await attempts.pause()  # Fetches find nothing where a watch has: not for long, one may hope.

    def _turned(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """In an order of their own for each read: where not all have room, who comes first has the most."""
        if len(places) == 1:
            return dict(places)
        rows = list(places.items())
        first = int.from_bytes(self._asking.entropy.token(4), "big") % len(rows)
        return dict(rows[first:] + rows[:first])

    async def _look(
        self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline, *, waits: bool
    ) -> Portions:
        """What is at hand, or is fetched. Who waits need not ask where a watch knows that there is nothing."""
        found: Portions = {}
        unknown: dict[TopicPartition, int] = {}
        for where, offset in offsets.items():
            watch = self._watches.get(where)
            portion = None if watch is None else watch.take(offset, limits)
            if portion is None and waits and watch is not None and watch.is_live and offset >= watch.position:
                portion = watch.nothing(offset)
            if portion is None or watch is None:
                unknown[where] = offset
            else:
                found[where] = portion
                self._use(watch)
        if unknown:
            fetch = self._behind.share if waits else self._behind.fetch
            found |= await fetch(unknown, limits, deadline)
        return found

    # Waiting.

    async def _wait(self, offsets: Mapping[TopicPartition, int], until: Deadline, deadline: Deadline) -> bool:
        """Until there is news of one of the places, or the wait is over; False, at once, where there is some already.

        Raises why one of them cannot be watched.
        """
        for where, offset in offsets.items():
            await self._watch(where, offset, deadline)
        waits = [(self._watches.get(where), offset) for where, offset in offsets.items()]
        news: asyncio.Future[None] = self._loop.create_future()
        wake = partial(_wake, news)
        cancels: list[Cancel] = []
        try:
            for watch, offset in waits:
                if watch is None or (watch.is_live and offset < watch.position):
                    return False
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

    async def _watch(self, where: TopicPartition, offset: int, deadline: Deadline) -> None:
        """Have it watched, for one who waits at this offset."""
        watch = self._watches.get(where)
        if watch is not None and watch.is_overtaken(offset):
            self._forget(watch)  # Another begins at the end; nobody wants what lies between.
        if where not in self._watches:
            address = await self._cluster.leader(*where, deadline)
            if where not in self._watches:
                watch = self._watches[where] = PartitionWatch(where, self._cache, self._loop.time())
                self._link(address).open(watch)
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
            link = self._links[address] = WatchConnection(self._cluster, address, self._owner)
        return link

    # What becomes of watches.

    def _failed(self, watch: PartitionWatch, error: MillstreamError) -> None:
        self._forget(watch)
        watch.fail(error)

    def _lost(self, watch: PartitionWatch, error: MillstreamError) -> None:
        """Its broker is gone, or leads no longer: whoever waits waits on, and a new one is looked for."""
        _log.debug("%s is looked for: %s", watch.where, error)
        watch.lose()
        self._cluster.forget(watch.where.topic)
        self._homeless[watch] = None
        if self._finding is None:
            _log.info("watching again: %s", error)
            self._finding = self._loop.create_task(self._find(), name="finding what is watched")

    def _forget(self, watch: PartitionWatch) -> None:
        self._watches.pop(watch.where, None)
        self._homeless.pop(watch, None)
        if watch.feed is not None:
            watch.feed.end()
        watch.lose()

    async def _find(self) -> None:
        """Until each of the homeless is at a link."""
        try:
            while self._homeless:
                if self._attempts is None or self._loop.time() >= self._stable_at_s:
                    self._attempts = Attempts(self._asking.entropy, Deadline(_EVER_S))
                await self._attempts.pause()
                self._stable_at_s = self._loop.time() + _STABLE_S
                try:
                    await self._find_leaders(list(self._homeless), Deadline(LOOK_UP_S))
                except MillstreamError as error:
                    _log.debug("what is watched cannot be looked for: %s", error)
        finally:
            self._finding = None

    async def _find_leaders(self, watches: Sequence[PartitionWatch], deadline: Deadline) -> None:
        topics = list(dict.fromkeys(watch.where.topic for watch in watches))
        for at in range(0, len(topics), TOPICS_PER_REQUEST):
            await self._cluster.refresh(topics[at : at + TOPICS_PER_REQUEST], deadline)
        for watch in watches:
            try:
                address = await self._cluster.leader(*watch.where, deadline)
            except MillstreamError as error:
                if is_final(error):
                    self._failed(watch, error)
            else:
                if watch in self._homeless:
                    del self._homeless[watch]
                    self._link(address).open(watch)

    def _tick(self) -> None:
        """Once a second, while anything is watched."""
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
