"""Calls a shard when its machine needs a tick, with one event-loop timer per shard."""

import asyncio
from collections.abc import Callable

from millstream.coordination.state_machine import Deadlines
from millstream.seams.clock import Clock


class TickTimer:
    """The timer of one shard.

    An earlier deadline replaces the timer. A later deadline does not: the timer fires at its old time, and is then set
    again.
    """

    def __init__(self, clock: Clock, due: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def set(self, deadlines: Deadlines) -> None:
        """Ensures that the timer fires no later than the next deadline."""
        if self._handle is not None and not deadlines.may_be_due_before(self._at_ms):
            return
        due_ms = deadlines.next_deadline_ms
        if due_ms is None or (self._handle is not None and self._at_ms <= due_ms):
            return
        self.stop()
        now_ms = int(self._clock.monotonic_s() * 1000)
        self._at_ms = due_ms
        self._handle = asyncio.get_running_loop().call_later(max(1, due_ms - now_ms) / 1000, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._due()
