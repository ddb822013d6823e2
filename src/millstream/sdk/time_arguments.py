"""Times as people write them: how long something may take, and when something was or is to be.

How long: a number of seconds, a `timedelta`, or the `datetime` at which the time is over.
When: an aware `datetime`, a `timedelta` from now (negative: ago), or seconds since the epoch, as from `time.time()`.
A `datetime` without a zone names no moment, so it is refused.
"""

import math
from datetime import datetime, timedelta

from millstream.sdk.arguments import wrong
from millstream.seams.clock import Clock

Time = float | timedelta | datetime
"""What is taken wherever a time is asked for."""

_MS_MAX = 2**53
"""Far beyond every date, and exact as a float."""


class Times:
    """Reads times against a clock. INVALID_SETTING, naming the parameter, for what is no time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def span_s(self, value: Time, name: str = "timeout") -> float:
        """How long that is, in seconds; 0 for a moment that has passed."""
        if isinstance(value, datetime):
            return max(0.0, (_epoch_ms(value, name) - self._clock.wall_ms()) / 1000)
        seconds = _seconds(value, name)
        if seconds < 0:
            raise wrong(name, value, "it is negative")
        return seconds

    def moment_ms(self, value: Time, name: str) -> int:
        """When that is, in milliseconds since the epoch."""
        if isinstance(value, datetime):
            return _epoch_ms(value, name)
        base_ms = self._clock.wall_ms() if isinstance(value, timedelta) else 0
        moment_ms = base_ms + round(_seconds(value, name) * 1000)
        if moment_ms < 0:
            raise wrong(name, value, "it lies before 1970")
        return moment_ms


def _epoch_ms(value: datetime, name: str) -> int:
    if value.tzinfo is None or value.utcoffset() is None:
        raise wrong(name, value, "it has no zone; write datetime.now(tz=timezone.utc), for example")
    moment_ms = math.floor(value.timestamp() * 1000 + 0.5)
    if moment_ms < 0:
        raise wrong(name, value, "it lies before 1970")
    return moment_ms


def _seconds(value: float | timedelta, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, value, "expected seconds, a timedelta or a datetime")
    if not -_MS_MAX / 1000 <= value <= _MS_MAX / 1000:  # Nor is what is no number at all.
        raise wrong(name, value, "it is no number that a clock reaches")
    return float(value)
