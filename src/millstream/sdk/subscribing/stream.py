"""One subscription at one broker: a request that stands, on a connection that nobody else uses.

A stream ends once, whatever the reason, and tells its owner; what was received of it and not handed out is then asked
for anew, by another stream. So what a client holds is never more than its window.

Invariants, for each partition: acknowledged <= finished <= handed out <= received, all of them offsets. Of what was
received and not acknowledged, whatever is finished is committed once it is the share that the broker waits for.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.responses import refusal
from millstream.sdk.subscribing import requests
from millstream.sdk.subscribing.options import StreamSettings
from millstream.wire.subscribe import Delivered, Delivery

COMMIT_TIMEOUT_S = 30.0
CHECK_TIMEOUT_S = 10.0

log = logging.getLogger("millstream.sdk.subscription")


class Arrived(NamedTuple):
    """Whole batches of one partition, unopened; the first may begin before `position`."""

    stream: "SubscriptionStream"
    where: TopicPartition
    position: int
    next_offset: int
    stored: memoryview


class StreamOwner(NamedTuple):
    """Whom a stream tells."""

    arrived: Callable[[Arrived], None]
    refused: Callable[["SubscriptionStream", TopicPartition, MillstreamError], None]
    """Nothing more of this partition comes."""
    ended: Callable[["SubscriptionStream", MillstreamError], None]
    """Nothing more comes."""
    failed: Callable[[MillstreamError], None]
    """A commit was refused for good."""


class SubscriptionStream:
    def __init__(
        self,
        address: Address,
        places: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID],
        settings: StreamSettings,
        owner: StreamOwner,
    ) -> None:
        self.places = dict(places)
        """Where each partition goes on: behind what was received."""
        self._address = address
        self._topic_ids = topic_ids
        self._settings = settings
        self._owner = owner
        self._finished = dict(places)
        self._acknowledged = dict(places)
        self._held = AsyncExitStack()
        self._connection: BrokerConnection | None = None
        self._id = -1
        self._committing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._is_over = False

    async def open(self, cluster: Cluster, deadline: Deadline) -> None:
        """Subscribe; raises when the broker refuses, or is not there."""
        settings = self._settings
        request = requests.subscribe(
            self.places, settings.window, settings.group_id, settings.otherwise, self._topic_ids
        )
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
        """It is of no use any longer."""
        if not self._is_over:
            self._is_over = True
            if self._connection is not None:
                self._connection.close()
            self._owner.ended(self, error)

    # What comes.

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
            del self.places[where]
            self._owner.refused(self, where, refusal(row.error, str(where), row.message))
            return
        if row.position > self.places[where]:
            self._pass_over(where, row.position)
        self.places[where] = row.next_offset
        if row.records:
            assert isinstance(row.records, memoryview), "a frame is read as it came"
            self._owner.arrived(Arrived(self, where, row.position, row.next_offset, row.records))

    def _pass_over(self, where: TopicPartition, position: int) -> None:
        """What lies before is gone: nobody will finish it."""
        if self._finished[where] == self.places[where]:
            self._finished[where] = position
        if self._acknowledged[where] == self.places[where]:
            self._acknowledged[where] = position

    # What is done with.

    def finish(self, where: TopicPartition, offset: int, *, now: bool = False) -> None:
        """Everything before `offset` is done with; committed when that is due, or now."""
        if where in self._finished:
            self._finished[where] = max(self._finished[where], offset)
        self.settle(now=now)

    def settle(self, *, now: bool = False) -> None:
        """Begin to commit, where there is something that is due; or anything, now."""
        if self._is_over or self._committing is not None:
            return
        due, outstanding = self._due()
        if due and (now or due * 100 >= outstanding * self._settings.window.share_percent):
            self._committing = asyncio.get_running_loop().create_task(self._commit_finished())

    def check(self) -> None:
        """See whether the broker still knows of it: a connection that nobody sends on may have died in silence."""
        if not self._is_over and self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check())

    async def _check(self) -> None:
        try:
            await self.commit({}, CHECK_TIMEOUT_S)
        except MillstreamError as error:
            self.end(error)
        except Exception as error:
            self.end(client_failed(log, "asking whether the broker is there", error))
        self._checking = None

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float, metadata: str = "") -> None:
        """Commit these; raises the first refusal, or the end of the stream."""
        if self._connection is None or self._is_over:
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"the subscription at {self._address} is over")
        refused = await self._connection.request(requests.commit(self._id, offsets, metadata), timeout_s)
        for where, offset in offsets.items():
            if where not in refused and where in self._acknowledged:
                self._acknowledged[where] = max(self._acknowledged[where], offset)
                self._finished[where] = max(self._finished[where], offset)
        if refused:
            raise next(iter(refused.values()))

    def _due(self) -> tuple[int, int]:
        """Messages that are finished and not acknowledged, and all that are not."""
        due = sum(self._finished[where] - self._acknowledged[where] for where in self.places)
        return due, sum(end - self._acknowledged[where] for where, end in self.places.items())

    async def _commit_finished(self) -> None:
        try:
            await self._commit_until_heard()
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

    async def _commit_until_heard(self) -> None:
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
