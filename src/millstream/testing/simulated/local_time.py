"""Converts between simulated time and the monotonic clock of one machine, which may run faster or slower."""

import math


class LocalTime:
    """A machine's monotonic clock: it shows `local_start_s` at `true_start_s` and gains `rate` seconds per second."""

    __slots__ = ("_local_start_s", "_true_start_s", "rate")

    def __init__(self, *, rate: float, local_start_s: float, true_start_s: float) -> None:
        assert rate > 0, "a monotonic clock never stands still or goes back"
        self.rate = rate
        self._local_start_s = local_start_s
        self._true_start_s = true_start_s

    def local_s(self, true_s: float) -> float:
        """The reading of the machine's clock at a simulated time."""
        return self._local_start_s + (true_s - self._true_start_s) * self.rate

    def true_s(self, local_s: float) -> float:
        """The first simulated time at which the machine's clock has reached `local_s`.

        Rounding must not make it earlier: a timer that runs before its deadline would be set again and again.
        """
        true_s = self._true_start_s + (local_s - self._local_start_s) / self.rate
        while self.local_s(true_s) < local_s:
            true_s += max(math.ulp(true_s), math.ulp(local_s))
        return true_s
