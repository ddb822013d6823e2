"""Simulated time as a `Clock`: the wall clock follows the loop's time and can be made to jump."""

import asyncio

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """One machine's clocks. The monotonic one is the loop's; the wall clock is that plus an offset that may jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, wall_start_ms: int = WALL_START_MS) -> None:
        self._loop = loop
        self._offset_ms = wall_start_ms - round(loop.time() * 1000)

    def wall_ms(self) -> int:
        return self._offset_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def jump_ms(self, delta_ms: int) -> None:
        """Move the wall clock by so much, either way; the monotonic clock does not notice."""
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
        """Move the wall clock only, either way."""
        self._wall_ms += delta_ms
