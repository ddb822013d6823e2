"""What lies further back is fetched: many questions on one connection to each broker, none of which waits there.

Who waits may be answered together with others who asked the same: an answer that is a little old does no harm where
the end is watched afterwards. Who does not wait is answered with what is there now.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.records.batch import decode_messages, each_piece, unpacked
from penstock.records.message import Message
from penstock.sdk.answers import FetchedBatches
from penstock.sdk.asking import Asking
from penstock.sdk.consuming.reader import HEAVY_BYTES
from penstock.sdk.fetching import ahead
from penstock.sdk.retry import Attempts, Deadline
from penstock.sdk.watching.portion import Limits, Portion, from_on
from penstock.sdk.watching.requests import fetch

PIECE_BYTES = 32 * 1024
"""As much is opened at once, and no more than is wanted: who reads few messages gets large answers all the same."""

FETCHES_MAX = 32
"""So many questions are under way at once; others wait for their turn."""

Portions = dict[TopicPartition, Portion]
_Places = tuple[tuple[TopicPartition, int], ...]


class Behind:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._shared: dict[tuple[_Places, Limits], asyncio.Task[Portions]] = {}

    async def close(self) -> None:
        tasks = list(self._shared.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def fetch(self, offsets: Mapping[TopicPartition, int], limits: Limits, deadline: Deadline) -> Portions:
        """What is there now, about as many bytes in all as the limits allow; the first places have them first.

        OFFSET_OUT_OF_RANGE for a place before the beginning; nothing for one that is not reached.
        """
        attempts = Attempts(self._asking.entropy, deadline)
        while True:
            try:
                async with self._slots:
                    return await self._fetch(offsets, limits, deadline)
            except PenstockError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE or not await attempts.again(error):
                    raise

    async def _fetch(self, offsets: Mapping[TopicPartition, int], limits: Limits, deadline: Deadline) -> Portions:
        portions: Portions = {}
        for where, found in (await self._asking.leaders(offsets, partial(fetch, limits), deadline)).items():
            if found is None:
                found = await ahead(self._asking, where, offsets[where], deadline)
            portions[where] = await self._opened(where, offsets[where], found, limits)
        return portions

    async def _opened(self, where: TopicPartition, offset: int, found: FetchedBatches, limits: Limits) -> Portion:
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
        except PenstockError as error:
            raise PenstockError(error.code, f"{where}: {error.detail}") from error
        return Portion(*where, messages, next_offset, found.log_start_offset, found.high_watermark)

    async def share(self, offsets: Mapping[TopicPartition, int], limits: Limits, deadline: Deadline) -> Portions:
        """As `fetch`, together with all who ask the same meanwhile."""
        key = (tuple(sorted(offsets.items())), limits)
        task = self._shared.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self.fetch(offsets, limits, deadline), name="shared fetch")
            task.add_done_callback(partial(self._answered, key))
            self._shared[key] = task
        try:
            return dict(await asyncio.shield(task))
        except PenstockError as error:
            raise PenstockError(error.code, error.detail) from error

    def _answered(self, key: tuple[_Places, Limits], task: "asyncio.Task[Portions]") -> None:
        del self._shared[key]
        if not task.cancelled():
            task.exception()  # Marks it as seen: all who asked may be gone.
