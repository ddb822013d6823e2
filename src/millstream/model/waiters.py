"""Readers that wait until the log has grown past their offset; with nobody waiting this costs nothing."""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

Cancel = Callable[[], None]
"""Stops waiting; may be called at any time, also twice, and after the callback."""

_CANCELLED_KEPT = 32
"""So many cancelled entries may lie in the heap beyond the living ones before it is swept."""


class _Waiter:
    __slots__ = ("callback", "offset", "order", "queued")

    def __init__(self, offset: int, order: int, callback: Callable[[], None]) -> None:
        self.offset = offset
        self.order = order
        self.callback: Callable[[], None] | None = callback
        self.queued = True

    def __lt__(self, other: "_Waiter") -> bool:
        # Those who wait for the same offset are woken in the order they came: repeatable in a simulation, and fair.
        return (self.offset, self.order) < (other.offset, other.order)


class Waiters:
    """Callbacks ordered by the offset they wait for, each called at most once."""

    __slots__ = ("_cancelled", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[_Waiter] = []
        self._order = 0
        self._cancelled = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        """How many still wait."""
        return len(self._heap) - self._cancelled

    def add(self, offset: int, callback: Callable[[], None]) -> Cancel:
        self._order += 1
        waiter = _Waiter(offset, self._order, callback)
        heappush(self._heap, waiter)
        return lambda: self._cancel(waiter)

    def wake_below(self, end_offset: int) -> None:
        """Call those whose offset lies before `end_offset`; what they add meanwhile is served as well."""
        while self._heap and self._heap[0].offset < end_offset:
            waiter = heappop(self._heap)
            waiter.queued = False
            if waiter.callback is None:
                self._cancelled -= 1
            else:
                _call(waiter)

    def wake_all(self) -> None:
        """Call everybody who waits now; whoever asks again from within a callback waits on."""
        heap, self._heap, self._cancelled = sorted(self._heap), [], 0
        for waiter in heap:
            waiter.queued = False
        for waiter in heap:
            if waiter.callback is not None:
                _call(waiter)

    def _cancel(self, waiter: _Waiter) -> None:
        if waiter.callback is None:
            return
        waiter.callback = None
        if not waiter.queued:
            return
        self._cancelled += 1
        if self._cancelled > _CANCELLED_KEPT and self._cancelled * 2 > len(self._heap):
            self._heap = [waiter for waiter in self._heap if waiter.callback is not None]
            heapify(self._heap)
            self._cancelled = 0


def _call(waiter: _Waiter) -> None:
    callback, waiter.callback = waiter.callback, None
    assert callback is not None
    try:
        callback()
    except Exception as error:
        # The append that woke this reader has succeeded, and others wait too: neither may suffer from its fault.
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a waiting reader failed when it was woken", "exception": error}
        )
