"""The watches of one broker: a connection of their own, and on it a small subscription for each.

What comes is let in a window at a time. More is asked for only where somebody waits for it: a partition that is written
to faster than anybody reads sends no more than a window for nothing.

Invariant: a subscription that is not over is in `_queue`, or is being asked for, or stands on the connection. One that
is over without having been ended has told the link's owner.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.requests import metadata
from millstream.sdk.responses import refusal
from millstream.sdk.subscribing import requests
from millstream.sdk.subscribing.options import SubscriptionWindow
from millstream.sdk.watching.partition_watch import PartitionWatch
from millstream.wire.client_connection import ApiRequest
from millstream.wire.subscribe import BEGINNING, END, Delivered

WINDOW = SubscriptionWindow(messages=10_000_000, size_bytes=4 * 1024 * 1024, share_percent=50)
UNCOMMITTED_BYTES = 1024 * 1024
"""So batches that are far larger than a topic takes by default always find room, where somebody waits for them."""

AT_ONCE = 64
"""So many subscriptions are begun with one wait."""

TIMEOUT_S = 10.0

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class LinkOwner(NamedTuple):
    """Whom a link tells."""

    lost: Callable[[PartitionWatch, MillstreamError], None]
    """It must be opened again, here or elsewhere."""
    failed: Callable[[PartitionWatch, MillstreamError], None]
    """It is refused for good."""


class WatchConnection:
    def __init__(self, cluster: Cluster, address: Address, owner: LinkOwner) -> None:
        self.address = address
        self.owner = owner
        self.unsettled: dict[WatchFeed, None] = {}
        """Those of which something came since the last commit."""
        self._cluster = cluster
        self._held = AsyncExitStack()
        self._connection: BrokerConnection | None = None
        self._queue: deque[WatchFeed] = deque()
        self._opening: asyncio.Task[None] | None = None

    def open(self, watch: PartitionWatch) -> None:
        """Have the broker send what is written from now on."""
        feed = WatchFeed(self, watch)
        watch.feed = feed
        self._queue.append(feed)
        if self._opening is None:
            loop = asyncio.get_running_loop()
            self._opening = loop.create_task(self._open_queued(), name=f"watching at {self.address}")

    def settle(self) -> None:
        """Now and then: make room for a batch that found too little, where it is waited for."""
        for feed in list(self.unsettled):
            if feed.watch.waiting:
                feed.commit()

    def check(self) -> None:
        """See whether the broker is there: a connection that nobody sends on may have died in silence."""
        self.post(metadata([], auto_create=False))

    def rest(self) -> None:
        """Nothing is watched any more: the connection is not needed either."""
        if self._opening is None and self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """The watches are over already."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._hang_up()

    def post(self, request: ApiRequest[Any]) -> "asyncio.Future[Any] | None":
        """Say it. That a connection is lost is told to those who stand on it, and need not be seen here."""
        connection = self._connection
        if connection is None or connection.closed:
            return None
        answer = connection.post(request, self._cluster.timeout_s(Deadline(TIMEOUT_S)))
        answer.add_done_callback(_mark_as_seen)
        return answer

    def forget(self, subscription_id: int) -> None:
        if self._connection is not None:
            self._connection.forget(subscription_id)

    async def _open_queued(self) -> None:
        try:
            while self._queue:
                connection = await self._connected()
                some = [self._queue.popleft() for _ in range(min(len(self._queue), AT_ONCE))]
                timeout_s = self._cluster.timeout_s(Deadline(TIMEOUT_S))
                await asyncio.gather(*(feed.open(connection, timeout_s) for feed in some if not feed.is_over))
        except MillstreamError as error:
            refused, self._queue = self._queue, deque()
            for feed in refused:
                feed.over(error)
        finally:
            self._opening = None

    async def _connected(self) -> BrokerConnection:
        if self._connection is None or self._connection.closed:
            await self._hang_up()
            polling = self._cluster.polling(self.address, Deadline(TIMEOUT_S))
            self._connection = await self._held.enter_async_context(polling)
        return self._connection

    async def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        await self._held.aclose()


class WatchFeed:
    """One subscription."""

    __slots__ = ("_id", "_link", "_uncommitted_bytes", "is_over", "watch")

    def __init__(self, link: WatchConnection, watch: PartitionWatch) -> None:
        self.watch = watch
        self._link = link
        self.is_over = False
        self._id = -1
        self._uncommitted_bytes = 0

    async def open(self, connection: BrokerConnection, timeout_s: float) -> None:
        request = requests.subscribe({self.watch.where: END}, WINDOW, None, BEGINNING)
        try:
            self._id, answer = await connection.stand(request, timeout_s, self.deliver)
        except MillstreamError as error:
            self.over(error)
            return
        if self.is_over:
            self._unsubscribe()
        else:
            self.deliver(answer)

    @property
    def is_full(self) -> bool:
        return self._uncommitted_bytes >= UNCOMMITTED_BYTES

    def want(self) -> None:
        if self.is_full:
            self.commit()

    def commit(self) -> None:
        self._link.unsettled.pop(self, None)
        if self._id >= 0:
            self._uncommitted_bytes = 0
            self._link.post(requests.commit(self._id, {self.watch.where: self.watch.position}))

    def end(self) -> None:
        if not self.is_over:
            self._close()
            self._unsubscribe()

    def deliver(self, delivered: Delivered | MillstreamError) -> None:
        if self.is_over:
            return
        if isinstance(delivered, MillstreamError):
            self.over(delivered)
            return
        error, message = delivered.error, delivered.message
        is_wanted = self.watch.waiting
        for row in delivered.partitions:
            if row.error:
                error, message = row.error, row.message
            else:
                self._uncommitted_bytes += len(row.records)
                self.watch.deliver(row, asyncio.get_running_loop().time())
        if error:
            self._link.forget(self._id)
            self.over(refusal(error, str(self.watch.where), message))
        elif self._uncommitted_bytes:
            self._link.unsettled[self] = None
            if is_wanted:
                self.want()

    def over(self, error: MillstreamError) -> None:
        """It is over without anybody's wish."""
        if self.is_over:
            return
        self._close()
        if not is_final(error):
            self._link.owner.lost(self.watch, error)
        else:
            self._link.owner.failed(self.watch, error)

    def _close(self) -> None:
        self.is_over = True
        self._link.unsettled.pop(self, None)

    def _unsubscribe(self) -> None:
        """What comes before the answer is nobody's."""
        answer = self._link.post(requests.unsubscribe(self._id)) if self._id >= 0 else None
        if answer is not None:
            answer.add_done_callback(lambda _: self._link.forget(self._id))


def _mark_as_seen(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()


def is_final(error: MillstreamError) -> bool:
    """Whether looking for another broker is of no use."""
    return not error.code.retriable or error.code in _MISSING
