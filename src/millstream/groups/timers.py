"""When something is due: one heap for everything that waits, cleaned when it is looked at.

A timer that is pushed back, as every heartbeat does, costs one entry in a dictionary: its old place in the heap is
noticed when it comes up, and only then moved. Invariant: every timer that is set has a place in the heap that is not
later than its time.
"""

from collections.abc import Iterator
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import NamedTuple

_SLACK = 64
"""Places in the heap that may be out of date, beside as many as there are timers, before it is built anew."""


class TimerKind(Enum):
    """What a timer is for; each kind of group uses its own."""

    EXPIRY = auto()
    """Look at the committed offsets of a group, or at the group itself if it is empty."""
    SESSION = auto()
    """A member has been silent for too long."""
    PENDING = auto()
    """A member was told its id and did not come with it."""
    JOIN = auto()
    """The time to gather is over."""
    SYNC = auto()
    """The time to fetch the assignment is over."""
    REGEX = auto()
    """A long search for the topics that an expression stands for goes on."""
    REBALANCE = auto()
    """A member of the new protocol did not give back its partitions in time."""
    ASSIGN = auto()
    """A group of the new protocol may share out its partitions again."""
    GONE = auto()
    """There are offsets left of topics that are gone; of no group."""


class Timer(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timers:
    """Timers by what they are for. Those due at the same time come in the order in which they got their place."""

    __slots__ = ("_at_ms", "_heap", "_places")

    def __init__(self) -> None:
        self._at_ms: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._places = 0

    def __len__(self) -> int:
        return len(self._at_ms)

    def set(self, timer: Timer, at_ms: int) -> None:
        """Let the timer be due then, instead of whenever it was."""
        before_ms = self._at_ms.get(timer)
        self._at_ms[timer] = at_ms
        if before_ms is None or at_ms < before_ms:
            self._push(timer, at_ms)

    def cancel(self, timer: Timer) -> None:
        """Let it not be due at all; one that is not set is passed over."""
        self._at_ms.pop(timer, None)

    def at_ms(self, timer: Timer) -> int | None:
        """When it is due; None if it is not set."""
        return self._at_ms.get(timer)

    @property
    def next_ms(self) -> int | None:
        """When the first timer is due; None when there is none."""
        heap, at_ms = self._heap, self._at_ms
        while heap:
            place_ms, _, timer = heap[0]
            due_ms = at_ms.get(timer)
            if due_ms == place_ms:
                return due_ms
            heappop(heap)
            if due_ms is not None and due_ms > place_ms:
                self._push(timer, due_ms)
        return None

    def may_be_before(self, at_ms: int) -> bool:
        """Whether a timer may be due earlier than that: a look at the heap as it is, which says yes too often."""
        return bool(self._heap) and self._heap[0][0] < at_ms

    def due(self, now_ms: int, most: int) -> Iterator[Timer]:
        """Take out the timers that are due, at most so many, earliest first; what is set meanwhile counts too."""
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                return
            timer = heappop(self._heap)[2]
            del self._at_ms[timer]
            yield timer

    def _push(self, timer: Timer, at_ms: int) -> None:
        self._places += 1
        heappush(self._heap, (at_ms, self._places, timer))
        if len(self._heap) > 2 * len(self._at_ms) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(at_ms, place, timer) for place, (timer, at_ms) in enumerate(self._at_ms.items())]
        self._places = len(self._heap)
        heapify(self._heap)
