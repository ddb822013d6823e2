"""Limits repeated log lines to one per key and period, and counts the suppressed ones.

Invariants: at most `keys_max` keys are remembered, and at most `lines_max` lines are admitted per period. So neither
many lines of one key nor many keys can flood the log or the memory.
"""

from collections import OrderedDict
from collections.abc import Hashable


class LogLimiter:
    """Decides which lines are logged; the caller writes them. `now_s` is the time of a monotonic clock."""

    def __init__(self, period_s: float, *, keys_max: int = 1_000, lines_max: int = 50) -> None:
        self._period_s = period_s
        self._keys_max = keys_max
        self._lines_max = lines_max
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """For each key: the time of its last line, and the number of lines suppressed since then."""
        self._period_began_s = -period_s
        self._lines = 0
        self._refused = 0
        self._overflow = 0

    def admit(self, key: Hashable, now_s: float) -> int | None:
        """Returns the number of lines of this key suppressed since the last one, or None to suppress this line."""
        logged_s, left_out = self._seen.get(key, (-self._period_s, 0))
        if now_s - logged_s < self._period_s:
            self._seen[key] = (logged_s, left_out + 1)
            return None
        if not self.has_room(now_s):
            return None
        self._seen[key] = (now_s, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > self._keys_max:
            self._seen.popitem(last=False)
        return left_out

    def take_overflow(self) -> int:
        """Returns the number of lines over `lines_max` in the last complete period, and resets it."""
        overflow, self._overflow = self._overflow, 0
        return overflow

    def has_room(self, now_s: float) -> bool:
        """Admits a line without a key: returns False if `lines_max` lines were admitted in this period."""
        if not 0 <= now_s - self._period_began_s < self._period_s:  # A wall clock may have been set back.
            self._overflow = self._refused
            self._period_began_s, self._lines, self._refused = now_s, 0, 0
        if self._lines >= self._lines_max:
            self._refused += 1
            return False
        self._lines += 1
        assert len(self._seen) <= self._keys_max
        return True
