"""Logs disk errors with a rate limit.

A full disk fails thousands of writes per second, in all partitions. So each data directory logs each kind of error at
most once per interval, with the number of suppressed lines.
"""

import logging
from collections.abc import Callable, Mapping

from millstream.process.log_limiter import LogLimiter
from millstream.seams.clock import Clock
from millstream.storage.disk_reserve import is_full

EVERY_S = 30.0
"""The interval in which one kind of error of a data directory is logged once."""

Where = Mapping[str, object]
"""The fields that name a log, or a file."""

_logger = logging.getLogger(__name__)


class DiskErrorLog:
    """The disk errors of one data directory. Called from the event loop and from workers."""

    def __init__(self, clock: Clock, on_full: Callable[[], None] = lambda: None) -> None:
        """`on_full` is called when a failed write is logged whose cause is a full disk."""
        self._clock = clock
        self._limiter = LogLimiter(EVERY_S)
        self._is_refusing = False
        self._on_full = on_full

    def refused(self, where: Where, cause: OSError | str) -> None:
        """Log a failed write, or a failed flush of one."""
        if self._log("write failed", where, cause):
            self._is_refusing = True
            if isinstance(cause, OSError) and is_full(cause):
                self._on_full()

    def works(self, where: Where) -> None:
        """Log that writes succeed again, once after each logged failure."""
        if self._is_refusing:
            self._is_refusing = False
            _logger.info("writes recovered", extra=where)

    def unreadable(self, where: Where, cause: OSError | str) -> None:
        """Log a failed read that may succeed later."""
        self._log("read failed", where, cause)

    def unclean(self, where: Where, cause: OSError | str) -> None:
        """Log a failed compaction, which leaves its log unchanged."""
        self._log("compaction failed", where, cause)

    def unmarked(self, where: Where, cause: OSError | str) -> None:
        """Log that end marks could not be saved. Acknowledgements continue."""
        self._log("end marks not saved", where, cause)

    def _log(self, event: str, where: Where, cause: OSError | str) -> bool:
        suppressed = self._limiter.admit(event, self._clock.monotonic_s())
        if suppressed is None:
            return False
        _logger.warning(event, extra={**where, "error": str(cause), "suppressed": suppressed})
        return True
