"""What lies further back is fetched: many questions on one connection to each broker, none of which waits there.

Who waits may be answered together with others who asked the same: an answer that is a little old does no harm where
the end is watched afterwards. Who does not wait is answered with what is there now.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from penstock.model.errors import PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.asking import Asking
from penstock.sdk.fetching import ahead
from penstock.sdk.retry import Deadline
from penstock.sdk.watching.portion import Limits, Portion
from penstock.sdk.watching.requests import fetch

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
        async with self._slots:
            found = await self._asking.leaders(offsets, partial(fetch, limits), deadline)
        portions: Portions = {}
        for where, portion in found.items():
            if portion is None:
                at = offsets[where]
                none = await ahead(self._asking, where, at, deadline)
                portion = Portion(*where, [], at, none.log_start_offset, none.high_watermark)
            portions[where] = portion
        return portions

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
