"""Real time that a test can move: the machine's clocks plus what was added to them, and an event loop that follows."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta


class AdjustableClock:
    """The clocks of this machine, moved forward at will. Whoever sleeps on a `AdjustableLoop` wakes accordingly."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._wall_only_s = 0.0
        self.when_moved: Callable[[], None] | None = None
        """Called after each move, in the thread that made it."""

    def wall_ms(self) -> int:
        return int((time.time() + self._ahead_s + self._wall_only_s) * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, by: timedelta | float) -> None:
        """Let time pass on both clocks, a `timedelta` or seconds of it, without waiting."""
        seconds = _seconds(by)
        if seconds < 0:
            raise ValueError("time does not pass backwards; `jump` moves the wall clock either way")
        self._ahead_s += seconds
        self._tell()

    def jump(self, by: timedelta | float) -> None:
        """Move the wall clock only, either way, as an operator or a time server does."""
        self._wall_only_s += _seconds(by)
        self._tell()

    def set_wall(self, when: datetime) -> None:
        """Make the wall clock show `when` (with a time zone)."""
        if when.tzinfo is None:
            raise ValueError("the time needs a time zone, such as datetime.UTC")
        self.jump(when.timestamp() - self.wall_ms() / 1000)

    def _tell(self) -> None:
        if self.when_moved is not None:
            self.when_moved()


class AdjustableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a `AdjustableClock`'s, so that its timers are due when the clock says so."""

    def __init__(self, clock: AdjustableClock) -> None:
        self._moved = clock
        super().__init__()

    def time(self) -> float:
        return self._moved.monotonic_s()

    def look_again(self) -> None:
        """The clock was moved: look at the timers now, and not when the sleep that is under way ends. Thread-safe."""
        self.call_soon_threadsafe(_nothing)


def _nothing() -> None:
    pass


def _seconds(by: timedelta | float) -> float:
    return by.total_seconds() if isinstance(by, timedelta) else float(by)
