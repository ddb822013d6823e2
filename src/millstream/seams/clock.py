"""Defines the injected clock. Nothing else in Millstream asks the operating system for the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the wall clock may jump, the monotonic clock never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. The value may jump forward or back."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start. The value never decreases."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    """Called without a Python frame, because every request reads this clock."""
