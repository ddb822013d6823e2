"""Wakes callers that wait for an offset, in the order of their offsets, once the log has grown past it.

Without waiters this costs nothing. Most waiters arrive in offset order and join the end of a queue. A waiter whose
offset is smaller than the last one in the queue goes into a heap.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Protocol

Cancel = Callable[[], None]
"""Stops waiting. It may be called at any time, also repeatedly, and after the callback ran."""

_CANCELLED_KEPT = 32
"""The queue is swept when it has more cancelled entries than this, and more of them than live ones."""


class OffsetWaiter(Protocol):
    """Waits until a log has grown past `offset`."""

    @property
    def offset(self) -> int: ...

    def wake(self) -> None:
        """Called once when the log has passed the offset. It must not raise."""
        ...


class _Callback:
    """A waiter that calls a function and can be cancelled."""

    __slots__ = ("_waiters", "callback", "is_queued", "offset")

    def __init__(self, offset: int, callback: Callable[[], None], waiters: "Waiters") -> None:
        self.offset = offset
        self.callback: Callable[[], None] | None = callback
        self.is_queued = True
        self._waiters = waiters

    def wake(self) -> None:
        self.is_queued = False
        callback, self.callback = self.callback, None
        if callback is None:
            self._waiters.cancelled_left()
            return
        try:
            callback()
        except Exception as error:
            # The append that woke this reader succeeded, and other readers wait: this failure must affect neither.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a waiting reader failed when it was woken", "exception": error}
            )


class Waiters:
    """Waiters ordered by offset; each is woken at most once.

    Waiters for the same offset are woken in the order in which they joined. That is fair, and a simulation can repeat
    it.

    Invariants: the offsets in the queue never decrease. A waiter in the heap joined after all waiters for the same
    offset in the queue.
    """

    __slots__ = ("_cancelled", "_late", "_order", "_queue")

    def __init__(self) -> None:
        self._queue: list[OffsetWaiter] = []  # Most queues hold one waiter; a deque would take ten times the memory.
        self._late: list[tuple[int, int, OffsetWaiter]] = []
        self._order = 0
        self._cancelled = 0

    def __bool__(self) -> bool:
        return bool(self._queue or self._late)

    def __len__(self) -> int:
        """The number of waiters that are neither woken nor cancelled."""
        return len(self._queue) + len(self._late) - self._cancelled

    def add(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback` when the log has grown past `offset`."""
        waiter = _Callback(offset, callback, self)
        self.join(waiter)
        return lambda: self._cancel(waiter)

    def join(self, waiter: OffsetWaiter) -> None:
        queue = self._queue
        if not queue or queue[-1].offset <= waiter.offset:
            queue.append(waiter)
        else:
            self._order += 1
            heappush(self._late, (waiter.offset, self._order, waiter))

    def wake_below(self, end_offset: int) -> None:
        """Wake all waiters whose offset is below `end_offset`, including those that callbacks add meanwhile."""
        late, queue = self._late, self._queue
        if queue and queue[-1].offset < end_offset and not late:  # The usual case after a flush.
            self._queue = []
            for waiter in queue:
                waiter.wake()
        while True:
            queue = self._queue  # A callback may have replaced it.
            if late and late[0][0] < end_offset and (not queue or late[0][0] < queue[0].offset):
                heappop(late)[2].wake()
            elif queue and queue[0].offset < end_offset:
                limit = min(end_offset, late[0][0] + 1) if late else end_offset
                count = bisect_left(queue, limit, key=_offset_of)
                self._queue = queue[count:]
                for waiter in queue[:count]:
                    waiter.wake()
            else:
                return

    def cancelled_left(self) -> None:
        """Count a cancelled entry that has left the queue."""
        if self._cancelled:  # It is 0 if the queue was swept while a callback ran.
            self._cancelled -= 1

    def wake_all(self) -> None:
        """Wake all current waiters. A waiter that a callback adds meanwhile is not woken."""
        for waiter in self.take(lambda _: True):
            waiter.wake()

    def take(self, wanted: Callable[[OffsetWaiter], bool]) -> list[OffsetWaiter]:
        """Remove the waiters for which `wanted` is true, and return them in order."""
        taken: list[OffsetWaiter] = []
        kept: list[OffsetWaiter] = []
        for waiter in self._living():
            if not wanted(waiter):
                kept.append(waiter)
                continue
            taken.append(waiter)
            if isinstance(waiter, _Callback):
                waiter.is_queued = False
        self._keep(kept)
        return taken

    def _living(self) -> list[OffsetWaiter]:
        waiting = [*self._queue, *(waiter for _, _, waiter in sorted(self._late, key=_heap_order))]
        waiting.sort(key=_offset_of)
        return [waiter for waiter in waiting if not isinstance(waiter, _Callback) or waiter.callback is not None]

    def _keep(self, living: list[OffsetWaiter]) -> None:
        assert all(first.offset <= second.offset for first, second in pairwise(living)), "the queue is in order"
        self._queue = living
        self._late.clear()  # In place, because `wake_below` may hold a reference to it.
        self._cancelled = 0

    def _cancel(self, waiter: _Callback) -> None:
        if waiter.callback is None:
            return
        waiter.callback = None
        if not waiter.is_queued:
            return
        self._cancelled += 1
        if self._cancelled > _CANCELLED_KEPT and self._cancelled * 2 > len(self._queue) + len(self._late):
            self._keep(self._living())


def _offset_of(waiter: OffsetWaiter) -> int:
    return waiter.offset


def _heap_order(entry: tuple[int, int, OffsetWaiter]) -> tuple[int, int]:
    return entry[:2]
