"""Manages the watches of one broker: one connection, with a small push subscription for each watch.

A subscription accepts one window of messages, and another one only while a read waits. So a partition that is written
faster than it is read sends at most one window for nothing.

Invariants: each subscription that has not ended is in `_queue`, is being opened, or is open on the connection. One that
has ended is not in `uncommitted`, and nothing commits on it. Guarantee: a watch whose subscription ends by itself is
reported to the owner.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from millstream.model.errors import MillstreamError
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
"""The subscription is full from this size on, and commits when a read waits. It is far below the window, so that even a
batch much larger than a topic's default limit finds room."""

AT_ONCE = 64
"""The most subscriptions that are opened concurrently."""

TIMEOUT_S = 10.0


LinkOwner = Callable[[PartitionWatch, MillstreamError], None]
"""Called with a watch that lost its subscription, and the error. The owner opens it again, here or elsewhere."""


class WatchConnection:
    def __init__(self, cluster: Cluster, address: Address, owner: LinkOwner) -> None:
        self.address = address
        self.owner = owner
        self.uncommitted: dict[WatchSubscription, None] = {}
        """The subscriptions that received messages since their last commit."""
        self._cluster = cluster
        self._held = AsyncExitStack()
        self._connection: BrokerConnection | None = None
        self._queue: deque[WatchSubscription] = deque()
        self._opening: asyncio.Task[None] | None = None

    def open(self, watch: PartitionWatch) -> None:
        """Subscribe a watch to new messages, from the log end on."""
        loop = asyncio.get_running_loop()
        subscription = WatchSubscription(self, watch)
        watch.open(subscription, loop.time())
        self._queue.append(subscription)
        if self._opening is None:
            self._opening = loop.create_task(self._open_queued(), name=f"watching at {self.address}")
        assert not self._opening.done(), "a task opens the queued subscriptions"

    def settle(self) -> None:
        """Commit for waiting reads, because a large batch may not have found room in the window."""
        for subscription in list(self.uncommitted):
            if subscription.watch.waiting:
                subscription.commit()

    def check(self) -> None:
        """Send a request to check that the broker is reachable: an idle connection may be dead."""
        self.post(metadata([], auto_create=False))

    def rest(self) -> None:
        """Close the connection: there are no watches."""
        if self._opening is None and self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Close the connection; the owner has ended the watches before."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._hang_up()

    def post(self, request: ApiRequest[Any]) -> "asyncio.Future[Any] | None":
        """Send a request without waiting. A lost connection is reported to its subscriptions, not here."""
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
                await asyncio.gather(*(each.open(connection, timeout_s) for each in some if not each.is_over))
        except MillstreamError as error:
            refused, self._queue = self._queue, deque()
            for each in refused:
                each.over(error)
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


class WatchSubscription:
    """The push subscription of one watch."""

    __slots__ = ("_id", "_link", "_uncommitted_bytes", "is_over", "watch")

    def __init__(self, link: WatchConnection, watch: PartitionWatch) -> None:
        self.watch = watch
        self._link = link
        self.is_over = False
        self._id = -1
        self._uncommitted_bytes = 0

    async def open(self, connection: BrokerConnection, timeout_s: float) -> None:
        request = requests.subscribe([self.watch.feed], WINDOW, None, BEGINNING, start=END)
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
        assert not self.is_over, "a subscription that has ended does not commit"
        self._link.uncommitted.pop(self, None)
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
        failure: MillstreamError | None = None
        if delivered.error:
            failure = refusal(delivered.error, str(self.watch.where), delivered.message)
        is_wanted = self.watch.waiting
        for row in delivered.partitions:
            if row.error:
                failure = requests.row_refusal(row)
            else:
                self._uncommitted_bytes += len(row.records)
                self.watch.deliver(row, asyncio.get_running_loop().time())
        if failure is not None:
            self._link.forget(self._id)
            self.over(failure)
        elif self._uncommitted_bytes:
            self._link.uncommitted[self] = None
            if is_wanted:
                self.want()

    def over(self, error: MillstreamError) -> None:
        """End the subscription with an error, and report that to the owner."""
        if self.is_over:
            return
        self._close()
        self._link.owner(self.watch, error)

    def _close(self) -> None:
        self.is_over = True
        self._link.uncommitted.pop(self, None)

    def _unsubscribe(self) -> None:
        """Unsubscribe at the broker; deliveries that arrive before the response are ignored."""
        answer = self._link.post(requests.unsubscribe(self._id)) if self._id >= 0 else None
        if answer is not None:
            answer.add_done_callback(lambda _: self._link.forget(self._id))


def _mark_as_seen(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()
