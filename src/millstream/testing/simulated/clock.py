"""Simulates clocks: a machine's clocks that follow the event loop, and clocks that a test moves by hand."""

import asyncio

from millstream.testing.simulated.local_time import LocalTime
from millstream.testing.simulated.loop import SimulatedLoop

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """One machine's clocks: a monotonic clock with a rate of its own, and a wall clock that also has an offset.

    `local_time` is None when the monotonic clock is the loop's own: same rate, same start.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        wall_start_ms: int = WALL_START_MS,
        rate: float = 1.0,
        monotonic_start_s: float | None = None,
    ) -> None:
        assert isinstance(loop, SimulatedLoop), "a simulated clock needs the simulated loop"
        self._loop = loop
        self.local_time: LocalTime | None = None
        if rate != 1.0 or monotonic_start_s is not None:
            now_s = loop.true_time()
            start_s = now_s if monotonic_start_s is None else monotonic_start_s
            self.local_time = LocalTime(rate=rate, local_start_s=start_s, true_start_s=now_s)
        self._offset_ms = wall_start_ms - round(self.monotonic_s() * 1000)

    def wall_ms(self) -> int:
        return self._offset_ms + int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        now_s = self._loop.true_time()
        return now_s if self.local_time is None else self.local_time.local_s(now_s)

    def jump_ms(self, delta_ms: int) -> None:
        """Move the wall clock forward or back; the monotonic clock does not change."""
        self._offset_ms += delta_ms


class ManualClock:
    """Clocks that stand still until a test moves them; for tests without a simulated loop."""

    def __init__(self, *, wall_ms: int = WALL_START_MS, monotonic_s: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance_ms(self, delta_ms: int) -> None:
        """Let time pass on both clocks."""
        if delta_ms < 0:
            raise ValueError("time does not pass backwards; use jump_ms for the wall clock")
        self._wall_ms += delta_ms
        self._monotonic_s += delta_ms / 1000

    def jump_ms(self, delta_ms: int) -> None:
        """Move only the wall clock, forward or back."""
        self._wall_ms += delta_ms
