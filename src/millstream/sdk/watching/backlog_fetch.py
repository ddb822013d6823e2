"""Fetches messages that are older than the recent cache, without waiting, over one connection to each broker.

Waiting reads of the same offsets share one request. Its answer may be slightly old, which is harmless because the log
end is watched afterwards. A read that does not wait sends a request of its own, so that its answer is current.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError, UnreadableError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.read_memory import held
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import PLACES_PER_REQUEST, RetryingCaller
from millstream.sdk.feed.chunk_opener import PIECE_BYTES, ChunkOpener
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.leader_call import Answers, ask_leaders
from millstream.sdk.feed.partition_feed import FeedPosition, PartitionFeed
from millstream.sdk.fetching import ahead
from millstream.sdk.responses import FetchedBatches
from millstream.sdk.watching.read_result import ReadResult, WatchLimits
from millstream.sdk.watching.requests import fetch

OPENED_AT_ONCE = 500
"""Number of partitions whose answers are opened per step; the event loop can run other tasks between steps."""

FETCHES_MAX = 32
"""The most requests in flight; others wait for a slot."""

MORE_S = 1.0
"""A read retries a shared request that failed if its own deadline is later by more than this."""

ReadResults = dict[TopicPartition, ReadResult]
_Places = tuple[tuple[TopicPartition, int], ...]


class _Shared(NamedTuple):
    """A fetch shared by reads of the same offsets, with the deadline of the read that started it."""

    task: asyncio.Task[ReadResults]
    deadline: Deadline

    def has_failed_before(self, deadline: Deadline) -> bool:
        """True if it failed with a retriable error, and a read with this deadline has time for a retry."""
        error = None if self.task.cancelled() else self.task.exception()
        may_pass = isinstance(error, MillstreamError) and error.code.retriable
        return may_pass and deadline.left_s > self.deadline.left_s + MORE_S

    def results(self) -> ReadResults:
        """Return a copy of the results, or raise a copy of the error; CLIENT_CLOSED if the task was cancelled."""
        if self.task.cancelled():
            raise MillstreamError(ErrorCode.CLIENT_CLOSED, "the client was closed")
        try:
            return dict(self.task.result())
        except MillstreamError as error:
            raise copy(error) from error


class BacklogFetch:
    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._opener = ChunkOpener(asking)
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._shared: dict[tuple[_Places, WatchLimits], _Shared] = {}

    async def close(self) -> None:
        tasks = [shared.task for shared in self._shared.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def fetch(
        self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline
    ) -> ReadResults:
        """Fetch what exists now, about as many bytes as the limits allow in all; earlier partitions are served first.

        Raises OFFSET_OUT_OF_RANGE for an offset before the log start. An offset after the log end gives no messages.
        """
        attempts = Attempts(self._asking.entropy, deadline)
        while True:
            try:
                async with self._slot(deadline):
                    return await self._fetch(offsets, limits, deadline)
            except MillstreamError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE or not await attempts.again(error):
                    raise

    async def _fetch(
        self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline
    ) -> ReadResults:
        results: ReadResults = {}
        feeds = [PartitionFeed(where, offset) for where, offset in offsets.items()]
        # Each request may return as much as the limits allow, so few requests with many partitions are best.
        for at in range(0, len(feeds), PLACES_PER_REQUEST):
            some = feeds[at : at + PLACES_PER_REQUEST]
            answers = await self._answers(some, limits, deadline)
            with held(self._asking.memory, sum(len(found.batches) for found in answers.values() if found is not None)):
                for number, feed in enumerate(some, 1):
                    if number % OPENED_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    found = answers[feed.where]
                    if found is None:
                        found = await ahead(self._asking, feed.where, feed.offset, deadline)
                    results[feed.where] = await self._opened(feed, found, limits)
        return results

    async def _answers(
        self, feeds: Sequence[PartitionFeed], limits: WatchLimits, deadline: Deadline
    ) -> dict[TopicPartition, FetchedBatches | None]:
        """Fetch at the offsets of these feeds from their leaders."""
        cluster = self._asking.cluster

        async def ask(
            leader: Address, positions: Mapping[TopicPartition, FeedPosition]
        ) -> Answers[FetchedBatches | None]:
            connection = await cluster.to(leader, deadline)
            return await connection.request(fetch(limits, positions), cluster.timeout_s(deadline))

        return await ask_leaders(self._asking, feeds, ask, deadline)

    async def _opened(self, feed: PartitionFeed, found: FetchedBatches, limits: WatchLimits) -> ReadResult:
        """Open as much of the response as the limits need, up to the first batch that cannot be read.

        Raises UNDECODABLE_BATCH or RESPONSE_TOO_LARGE if that batch comes first, and CORRUPT_MESSAGE if it is damaged.
        """
        chunks = FetchedChunk.each(feed, found, PIECE_BYTES)
        try:
            messages, next_offset = await self._opener.open(
                chunks,
                messages_max=limits.messages,
                bytes_max=limits.size_bytes,
                skips_bad_batches=limits.skips_bad_batches,
            )
        except UnreadableError:
            raise
        except MillstreamError as error:
            raise MillstreamError(error.code, f"{feed.where}: {error.detail}") from error
        end = feed.offset if next_offset is None else next_offset
        return ReadResult(*feed.where, messages, end, found.log_start_offset, found.high_watermark)

    async def share(
        self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline
    ) -> ReadResults:
        """Fetch like `fetch`, sharing the request with other reads of the same offsets; each keeps its own deadline."""
        key = (tuple(sorted(offsets.items())), limits)
        while (other := self._shared.get(key)) is not None:
            await asyncio.wait([other.task], timeout=deadline.left_s)
            if not other.task.done():
                raise _late(offsets)
            if not other.has_failed_before(deadline):
                return other.results()
        task = asyncio.get_running_loop().create_task(self.fetch(offsets, limits, deadline), name="shared fetch")
        task.add_done_callback(partial(self._answered, key))
        own = self._shared[key] = _Shared(task, deadline)
        await asyncio.wait([task])
        return own.results()

    @asynccontextmanager
    async def _slot(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._slots.acquire()
        except TimeoutError:
            raise MillstreamError(
                ErrorCode.REQUEST_TIMED_OUT, "timed out waiting for other reads of this client"
            ) from None
        try:
            yield
        finally:
            self._slots.release()

    def _answered(self, key: tuple[_Places, WatchLimits], task: "asyncio.Task[ReadResults]") -> None:
        del self._shared[key]
        if not task.cancelled():
            task.exception()  # Keeps asyncio from logging it: all waiting reads may have been cancelled.


def _late(offsets: Mapping[TopicPartition, int]) -> MillstreamError:
    places = ", ".join(map(str, list(offsets)[:3])) + (", ..." if len(offsets) > 3 else "")
    return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, f"{places}: the brokers did not answer in time")
