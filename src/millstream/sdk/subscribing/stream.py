"""Implements one subscription at one broker: a standing request on a connection of its own.

A stream ends once, for any reason, and reports that to its owner. Messages that were received and not delivered are
then requested again by another stream. So a client never holds more than its window.

Invariants, for the offsets of each partition: acknowledged <= finished <= received. None of them decreases. Finished
messages are committed once they are the share of the unacknowledged messages that the broker waits for.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import refusal
from millstream.sdk.subscribing import requests
from millstream.sdk.subscribing.options import StreamSettings
from millstream.wire.subscribe import Delivered, Delivery

COMMIT_TIMEOUT_S = 30.0
CHECK_TIMEOUT_S = 10.0

log = logging.getLogger("millstream.sdk.subscription")


class StreamOwner(NamedTuple):
    """The callbacks by which a stream reports to its owner."""

    arrived: Callable[[FetchedChunk], None]
    refused: Callable[["SubscriptionStream", TopicPartition, MillstreamError], None]
    """The broker sends nothing more of this partition."""
    ended: Callable[["SubscriptionStream", MillstreamError], None]
    """The stream has ended."""
    failed: Callable[[MillstreamError], None]
    """A commit failed with an error that a retry cannot fix."""


class SubscriptionStream:
    def __init__(
        self,
        address: Address,
        feeds: Sequence[PartitionFeed],
        settings: StreamSettings,
        owner: StreamOwner,
    ) -> None:
        self.places = {feed.where: feed.offset for feed in feeds}
        """The offset after the last received message, for each partition."""
        self._address = address
        self._feeds = {feed.where: feed for feed in feeds}
        self._settings = settings
        self._owner = owner
        self._finished = dict(self.places)
        self._acknowledged = dict(self.places)
        self._held = AsyncExitStack()
        self._connection: BrokerConnection | None = None
        self._id = -1
        self._committing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._is_over = False

    async def open(self, cluster: Cluster, deadline: Deadline) -> None:
        """Subscribe; raises if the broker refuses or cannot be reached."""
        settings = self._settings
        feeds = self._feeds.values()
        request = requests.subscribe(feeds, settings.window, settings.group_id, settings.out_of_range)
        try:
            self._connection = await self._held.enter_async_context(cluster.polling(self._address, deadline))
            timeout_s = cluster.timeout_s(deadline)
            self._id, answer = await self._connection.stand(request, timeout_s, self._deliver)
            if answer.error and not answer.partitions:
                raise refusal(answer.error, f"subscribing at {self._address}", answer.message)
        except BaseException:
            await self.close()
            raise
        self._deliver(answer)

    async def close(self) -> None:
        self._is_over = True
        for task in (self._committing, self._checking):
            if task is not None:
                task.cancel()
        if self._connection is not None:
            self._connection.close()
        await self._held.aclose()

    def end(self, error: MillstreamError) -> None:
        """End the stream with this error, and report that to the owner."""
        if not self._is_over:
            self._is_over = True
            if self._connection is not None:
                self._connection.close()
            self._owner.ended(self, error)

    def release(self, where: TopicPartition) -> None:
        """Ignore further deliveries of this partition."""
        del self.places[where]

    # Deliveries.

    def _deliver(self, delivered: Delivered | MillstreamError) -> None:
        if self._is_over:
            return
        if isinstance(delivered, MillstreamError):
            self.end(delivered)
            return
        for row in delivered.partitions:
            self._take(row)
        if delivered.error:
            self.end(refusal(delivered.error, f"the subscription at {self._address}", delivered.message))

    def _take(self, row: Delivery) -> None:
        where = TopicPartition(row.topic, row.partition)
        if where not in self.places:
            return
        if row.error:
            self.release(where)
            self._owner.refused(self, where, requests.row_refusal(row))
            return
        if row.next_offset < self.places[where]:
            return  # The response to Subscribe, which the task handles after the first delivery.
        if row.position > self.places[where]:
            self._pass_over(where, row.position)
        self.places[where] = row.next_offset
        feed = self._feeds[where]
        feed.served_under(row.leader_epoch)
        if row.records:
            assert isinstance(row.records, memoryview), "a delivery's records are a view of its frame"
            self._owner.arrived(
                FetchedChunk(
                    feed,
                    row.position,
                    next_offset=row.next_offset,
                    stored=row.records,
                    high_watermark=row.high_watermark,
                )
            )

    def _pass_over(self, where: TopicPartition, position: int) -> None:
        """Skip offsets whose messages were removed before the broker sent them: no caller will finish them."""
        if self._finished[where] == self.places[where]:
            self._finished[where] = position
        if self._acknowledged[where] == self.places[where]:
            self._acknowledged[where] = position
        assert self._acknowledged[where] <= self._finished[where] <= position, f"offsets of {where} are out of order"

    # Commits.

    def finish(self, where: TopicPartition, offset: int, *, now: bool = False) -> None:
        """Mark everything before `offset` as finished; start a commit if one is due, or if `now` is set."""
        if where in self._finished:
            self._finished[where] = max(self._finished[where], offset)
            assert self._finished[where] <= self.places.get(where, offset), f"{where}: unread messages were finished"
        self.settle(now=now)

    def settle(self, *, now: bool = False) -> None:
        """Start a commit if enough is finished; with `now`, if anything is finished."""
        if self._is_over or self._committing is not None:
            return
        due, outstanding = self._due()
        if due and (now or due * 100 >= outstanding * self._settings.window.share_percent):
            self._committing = asyncio.get_running_loop().create_task(self._commit_finished())

    def check(self) -> None:
        """Send an empty commit to check that the broker still serves the stream: an idle connection may be dead."""
        if not self._is_over and self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check())

    async def _check(self) -> None:
        try:
            await self.commit({}, CHECK_TIMEOUT_S)
        except MillstreamError as error:
            self.end(error)
        except Exception as error:
            self.end(client_failed(log, "liveness check of a broker", error))
        self._checking = None

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float, metadata: str = "") -> None:
        """Commit these offsets; raises the first refusal, or NETWORK_EXCEPTION if the stream has ended."""
        if self._connection is None or self._is_over:
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"the subscription at {self._address} is over")
        refused = await self._connection.request(requests.commit(self._id, offsets, metadata), timeout_s)
        for where, offset in offsets.items():
            if where not in refused and where in self._acknowledged:
                self._acknowledged[where] = max(self._acknowledged[where], offset)
                self._finished[where] = max(self._finished[where], offset)
                assert self._acknowledged[where] <= self._finished[where], (
                    f"{where}: unfinished messages were committed"
                )
        if refused:
            raise next(iter(refused.values()))

    def _due(self) -> tuple[int, int]:
        """Return two numbers of uncommitted offsets: those that the caller has finished, and all that were received."""
        due = sum(self._finished[where] - self._acknowledged[where] for where in self.places)
        return due, sum(end - self._acknowledged[where] for where, end in self.places.items())

    async def _commit_finished(self) -> None:
        try:
            await self._commit_with_retries()
        except MillstreamError as error:
            failure = error
        except Exception as error:
            failure = client_failed(log, "a commit", error)
        else:
            self._committing = None
            self.settle()
            return
        self._committing = None
        self._owner.failed(failure)

    async def _commit_with_retries(self) -> None:
        attempts = Attempts(self._settings.entropy, Deadline(COMMIT_TIMEOUT_S))
        while not self._is_over:
            try:
                await self.commit(self._unacknowledged(), COMMIT_TIMEOUT_S)
            except MillstreamError as error:
                if not self._is_over and not await attempts.again(error):
                    raise
            else:
                return

    def _unacknowledged(self) -> dict[TopicPartition, int]:
        finished = self._finished
        return {where: finished[where] for where in self.places if finished[where] > self._acknowledged[where]}
