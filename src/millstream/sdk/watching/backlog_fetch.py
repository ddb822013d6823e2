"""What lies further back is fetched: many questions on one connection to each broker, none of which waits there.

Who waits may be answered together with others who asked the same: an answer that is a little old does no harm where
the end is watched afterwards. Who does not wait is answered with what is there now.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages, each_piece, unpacked
from millstream.records.message import Message
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import PLACES_PER_REQUEST, RetryingCaller
from millstream.sdk.consuming.batch_opening import HEAVY_BYTES
from millstream.sdk.fetching import ahead
from millstream.sdk.responses import FetchedBatches
from millstream.sdk.watching.read_result import ReadResult, WatchLimits, from_on
from millstream.sdk.watching.requests import fetch

PIECE_BYTES = 32 * 1024
"""As much is opened at once, and no more than is wanted: who reads few messages gets large answers all the same."""

FETCHES_MAX = 32
"""So many questions are under way at once; others wait for their turn."""

MORE_S = 1.0
"""Who has so much more time than whoever asked asks again where that one failed."""

Portions = dict[TopicPartition, ReadResult]
_Places = tuple[tuple[TopicPartition, int], ...]


class _Shared(NamedTuple):
    """A fetch for all who ask the same, and until when whoever began it tries."""

    task: asyncio.Task[Portions]
    deadline: Deadline

    def has_failed_before(self, deadline: Deadline) -> bool:
        """Whether it failed by what may pass, and somebody with this deadline has time left to see it pass."""
        error = None if self.task.cancelled() else self.task.exception()
        may_pass = isinstance(error, MillstreamError) and error.code.retriable
        return may_pass and deadline.left_s > self.deadline.left_s + MORE_S

    def portions(self) -> Portions:
        """For one of perhaps many: a copy, or an error of its own; CLIENT_CLOSED when it was given up."""
        if self.task.cancelled():
            raise MillstreamError(ErrorCode.CLIENT_CLOSED, "the client was closed")
        try:
            return dict(self.task.result())
        except MillstreamError as error:
            raise MillstreamError(error.code, error.detail) from error


class BacklogFetch:
    def __init__(self, asking: RetryingCaller) -> None:
        self._asking = asking
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._shared: dict[tuple[_Places, WatchLimits], _Shared] = {}

    async def close(self) -> None:
        tasks = [shared.task for shared in self._shared.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def fetch(self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline) -> Portions:
        """What is there now, about as many bytes in all as the limits allow; the first places have them first.

        OFFSET_OUT_OF_RANGE for a place before the beginning; nothing for one that is not reached.
        """
        attempts = Attempts(self._asking.entropy, deadline)
        while True:
            try:
                async with self._slot(deadline):
                    return await self._fetch(offsets, limits, deadline)
            except MillstreamError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE or not await attempts.again(error):
                    raise

    async def _fetch(self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline) -> Portions:
        portions: Portions = {}
        # Each question may bring as much as the limits allow, so that there are no more of them than there must be.
        answers = await self._asking.leaders(offsets, partial(fetch, limits), deadline, at_once=PLACES_PER_REQUEST)
        for where, found in answers.items():
            if found is None:
                found = await ahead(self._asking, where, offsets[where], deadline)
            portions[where] = await self._opened(where, offsets[where], found, limits)
        return portions

    async def _opened(
        self, where: TopicPartition, offset: int, found: FetchedBatches, limits: WatchLimits
    ) -> ReadResult:
        """No more of it than is wanted; CORRUPT_MESSAGE when it is damaged."""
        messages: list[Message] = []
        size_bytes, next_offset = 0, offset
        try:
            for stored, end, is_packed in each_piece(found.batches, offset, PIECE_BYTES):
                whole = stored
                if is_packed and len(stored) >= HEAVY_BYTES:
                    whole = memoryview(await self._asking.workers.run(partial(unpacked, stored)))
                messages += from_on(decode_messages(whole, *where, packed_bytes=len(stored)), offset)
                size_bytes, next_offset = size_bytes + len(whole), end
                if len(messages) >= limits.messages or size_bytes >= limits.size_bytes:
                    break
        except MillstreamError as error:
            raise MillstreamError(error.code, f"{where}: {error.detail}") from error
        return ReadResult(*where, messages, next_offset, found.log_start_offset, found.high_watermark)

    async def share(self, offsets: Mapping[TopicPartition, int], limits: WatchLimits, deadline: Deadline) -> Portions:
        """As `fetch`, together with all who ask the same meanwhile, each for as long as it has time itself."""
        key = (tuple(sorted(offsets.items())), limits)
        while (other := self._shared.get(key)) is not None:
            await asyncio.wait([other.task], timeout=deadline.left_s)
            if not other.task.done():
                raise _late(offsets)
            if not other.has_failed_before(deadline):
                return other.portions()
        task = asyncio.get_running_loop().create_task(self.fetch(offsets, limits, deadline), name="shared fetch")
        task.add_done_callback(partial(self._answered, key))
        own = self._shared[key] = _Shared(task, deadline)
        await asyncio.wait([task])
        return own.portions()

    @asynccontextmanager
    async def _slot(self, deadline: Deadline) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._slots.acquire()
        except TimeoutError:
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "too many reads are under way at once") from None
        try:
            yield
        finally:
            self._slots.release()

    def _answered(self, key: tuple[_Places, WatchLimits], task: "asyncio.Task[Portions]") -> None:
        del self._shared[key]
        if not task.cancelled():
            task.exception()  # Marks it as seen: all who asked may be gone.


def _late(offsets: Mapping[TopicPartition, int]) -> MillstreamError:
    places = ", ".join(map(str, list(offsets)[:3])) + (", ..." if len(offsets) > 3 else "")
    return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, f"{places}: the brokers have not answered in time")
