"""What the broker's log says about a disk in trouble: enough to act on, and not a line for every request.

A full disk refuses thousands of writes a second, in all partitions alike. So of each kind one line in a while is
written for a data directory, with how many others were left out.
"""

import logging

from millstream.seams.clock import Clock

EVERY_S = 30.0
"""How often one kind of trouble is told of a data directory."""

_logger = logging.getLogger(__name__)


class DiskErrorLog:
    """The disk trouble of one data directory. Called from the event loop and from workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._is_refusing = False

    def refused(self, path: str, cause: OSError | str) -> None:
        """A write, or the flush of one, failed."""
        if self._tell("a write was refused", path, cause):
            self._is_refusing = True

    def works(self, path: str) -> None:
        """A log whose last write was refused has taken one; told once for each time that a refusal was told."""
        if self._is_refusing:
            self._is_refusing = False
            _logger.info("writes work again", extra={"log": path})

    def unreadable(self, path: str, cause: OSError | str) -> None:
        """A read failed, in a way that may pass."""
        self._tell("a read failed", path, cause)

    def unclean(self, path: str, cause: OSError | str) -> None:
        """A log could not be compacted now; it is as it was."""
        self._tell("a log could not be cleaned", path, cause)

    def _tell(self, what: str, path: str, cause: OSError | str) -> bool:
        now_s = self._clock.monotonic_s()
        told_s = self._told_s.get(what)
        if told_s is not None and now_s - told_s < EVERY_S:
            self._left_out[what] = self._left_out.get(what, 0) + 1
            return False
        self._told_s[what] = now_s
        extra = {"log": path, "why": str(cause), "left_out": self._left_out.pop(what, 0)}
        _logger.warning(what, extra=extra)
        return True
