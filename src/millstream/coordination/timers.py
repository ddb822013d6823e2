"""Keeps the timers of a state machine in one heap, which is cleaned lazily.

Postponing a timer, as every heartbeat does, costs one dictionary entry: its old heap entry is moved only when it
reaches the top. Invariant: every timer that is set has a heap entry that is not later than its due time.
"""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_SLACK = 64
"""The heap is rebuilt when it has more than this many entries beyond twice the number of timers."""


class Timers(Generic[T]):
    """Due times by timer. Timers with the same due time fire in the order in which they entered the heap."""

    __slots__ = ("_at_ms", "_heap", "_places")

    def __init__(self) -> None:
        self._at_ms: dict[T, int] = {}
        self._heap: list[tuple[int, int, T]] = []
        self._places = 0

    def __len__(self) -> int:
        return len(self._at_ms)

    def set(self, timer: T, at_ms: int) -> None:
        """Sets or replaces the due time of a timer."""
        before_ms = self._at_ms.get(timer)
        self._at_ms[timer] = at_ms
        if before_ms is None or at_ms < before_ms:
            self._push(timer, at_ms)

    def cancel(self, timer: T) -> None:
        """Removes a timer. Ignores one that is not set."""
        self._at_ms.pop(timer, None)

    def at_ms(self, timer: T) -> int | None:
        """Returns the due time of a timer; None if it is not set."""
        return self._at_ms.get(timer)

    @property
    def next_ms(self) -> int | None:
        """The earliest due time; None if no timer is set."""
        heap, at_ms = self._heap, self._at_ms
        while heap:
            place_ms, _, timer = heap[0]
            due_ms = at_ms.get(timer)
            if due_ms == place_ms:
                return due_ms
            heappop(heap)
            if due_ms is not None:
                assert due_ms > place_ms, "an entry for an earlier due time would be at the top of the heap"
                self._push(timer, due_ms)
        return None

    def may_be_before(self, at_ms: int) -> bool:
        """True if a timer may be due before `at_ms`.

        The heap is not cleaned first, so the result may be True although no timer is due by then.
        """
        return bool(self._heap) and self._heap[0][0] < at_ms

    def due(self, now_ms: int, *, most: int) -> Iterator[T]:
        """Removes and yields at most `most` due timers, the earliest first.

        Due timers that are set during the iteration are included.
        """
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                return
            timer = heappop(self._heap)[2]
            del self._at_ms[timer]
            yield timer

    def _push(self, timer: T, at_ms: int) -> None:
        self._places += 1
        heappush(self._heap, (at_ms, self._places, timer))
        if len(self._heap) > 2 * len(self._at_ms) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(at_ms, place, timer) for place, (timer, at_ms) in enumerate(self._at_ms.items())]
        self._places = len(self._heap)
        heapify(self._heap)
