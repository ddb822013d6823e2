"""Provides real clocks that a test can move forward, and an event loop that follows them."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta


class AdjustableClock:
    """The clocks of this machine plus an adjustable offset. Timers of an `AdjustableLoop` follow them."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._wall_only_s = 0.0
        self.when_moved: Callable[[], None] | None = None
        """Called after each move, in the thread that moved the clock."""

    def wall_ms(self) -> int:
        return int((time.time() + self._ahead_s + self._wall_only_s) * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, by: timedelta | float) -> None:
        """Move both clocks forward, by a `timedelta` or by seconds, without waiting."""
        seconds = _seconds(by)
        if seconds < 0:
            raise ValueError("time does not pass backwards; `jump` moves the wall clock either way")
        self._ahead_s += seconds
        self._notify()

    def jump(self, by: timedelta | float) -> None:
        """Move only the wall clock, forward or back, as an operator or a time server does."""
        self._wall_only_s += _seconds(by)
        self._notify()

    def set_wall(self, when: datetime) -> None:
        """Set the wall clock to `when`, which needs a time zone."""
        if when.tzinfo is None:
            raise ValueError(f"{when} has no time zone; use a datetime with one, such as datetime.UTC")
        self.jump(when.timestamp() - self.wall_ms() / 1000)

    def _notify(self) -> None:
        if self.when_moved is not None:
            self.when_moved()


class AdjustableLoop(asyncio.SelectorEventLoop):
    """An event loop that takes its time from an `AdjustableClock`, so that moving the clock fires its timers."""

    def __init__(self, clock: AdjustableClock) -> None:
        self._moved = clock
        super().__init__()

    def time(self) -> float:
        return self._moved.monotonic_s()

    def look_again(self) -> None:
        """Examine the timers now, because the clock was moved. Thread-safe."""
        self.call_soon_threadsafe(_nothing)


def _nothing() -> None:
    pass


def _seconds(by: timedelta | float) -> float:
    return by.total_seconds() if isinstance(by, timedelta) else float(by)
