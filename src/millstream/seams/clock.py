"""Time, handed in: nothing else in Millstream asks the operating system what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read and that may jump, one that only goes forward."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump either way."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
