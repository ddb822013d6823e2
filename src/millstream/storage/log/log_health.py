"""Tracks the disk errors of one log, and decides whether the log is usable.

A log is *broken* after a failed write, *fenced* after a failed flush, and *quarantined* when acknowledged data is
damaged or missing. A broken or fenced log accepts appends again once it is repaired. A quarantined log refuses every
read and write until the next start.

Invariant: a fenced log is broken.
"""

import logging

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.clock import Clock
from millstream.storage.log.log_label import LogLabel
from millstream.storage.recovery.disk_errors import DiskErrorLog

_logger = logging.getLogger(__name__)


class LogHealth:
    """The disk errors of one log. Only its log changes it."""

    __slots__ = (
        "_clock",
        "_label",
        "_trouble",
        "broken",
        "is_fenced",
        "is_refusing",
        "may_have_lost",
        "quarantined",
        "refused_s",
    )

    def __init__(self, label: LogLabel, clock: Clock, trouble: DiskErrorLog) -> None:
        self.broken: OSError | str | None = None
        self.is_fenced = False
        """True after a failed flush: the unflushed part is unknown until it has been read back."""
        self.quarantined: str | None = None
        self.may_have_lost = False
        """True if this start truncated the log and the removed part may contain acknowledged batches."""
        self.refused_s: float | None = None
        """The monotonic time of the last failed write or flush."""
        self.is_refusing = False
        """True from a failed write until a write succeeds."""
        self._label = label
        self._clock = clock
        self._trouble = trouble

    def check(self) -> None:
        """Raise PARTITION_QUARANTINED or KAFKA_STORAGE_ERROR if the log is not usable."""
        if self.quarantined is not None:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, self.quarantined)
        if self.broken is not None:
            raise self.storage_error(self.broken)

    def storage_error(self, cause: OSError | str) -> MillstreamError:
        return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._label.path}: {cause}")

    # Transitions.

    def refused(self, cause: OSError) -> MillstreamError:
        """Record and report a failed write or flush, and return the error to raise."""
        self.refused_s = self._clock.monotonic_s()
        self.is_refusing = True
        self._trouble.refused(self._label.fields, cause)
        return self.storage_error(cause)

    def write_succeeded(self) -> None:
        """Report that writes succeed again after a failure."""
        self.is_refusing = False
        self._trouble.works(self._label.fields)

    def write_failed(self, cause: OSError) -> MillstreamError:
        """Mark the log as broken, and return the error to raise."""
        self.broken = cause
        return self.refused(cause)

    def fenced(self, cause: OSError | str) -> None:
        self.is_fenced = True
        self.broken = cause
        self._check()

    def repaired(self) -> None:
        assert self.quarantined is None, "a quarantined log is repaired only by a restart"
        self.broken, self.is_fenced = None, False
        self._check()

    def _check(self) -> None:
        assert self.broken is not None or not self.is_fenced, "a fenced log is broken"

    def stopped(self) -> None:
        self.broken = "the broker has been stopped"

    def quarantine(self, reason: str) -> MillstreamError:
        """Refuse everything from now on, because acknowledged data is damaged or gone. Return the error to raise."""
        if self.quarantined is None:
            self.quarantined = reason
            _logger.error("partition quarantined", extra={**self._label.fields, "error": reason})
        return MillstreamError(ErrorCode.PARTITION_QUARANTINED, self.quarantined)

    def recovered_as_quarantined(self, reason: str) -> None:
        """Take over a quarantine that recovery has already reported."""
        self.quarantined = reason

    def recovered_with_possible_loss(self) -> None:
        """Note that recovery has truncated the log, perhaps below acknowledged batches. It has reported that."""
        self.may_have_lost = True

    # Reports.

    def compaction_failed(self, cause: OSError) -> None:
        self._trouble.unclean(self._label.fields, cause)

    def read_failed(self, cause: OSError | str) -> MillstreamError:
        """Report a failed read that may succeed later, and return the error to raise."""
        self._trouble.unreadable(self._label.fields, cause)
        return self.unreadable(cause)

    def unreadable(self, cause: OSError | str) -> MillstreamError:
        return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._label.path} cannot be read: {cause}")
