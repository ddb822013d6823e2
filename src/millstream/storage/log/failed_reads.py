"""Decides whether a failed read may succeed later, or proves that data is lost and quarantines the log."""

from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.storage.log.log import Log


def read_failed(log: "Log", error: OSError | MillstreamError) -> MillstreamError:
    """Handle a failed read, and return the error to raise. Quarantine the log if acknowledged data is gone."""
    is_whole = not (log.health.is_fenced or log.is_deleted)  # Otherwise its files may be replaced or removed now.
    if isinstance(error, MillstreamError):
        if error.code is not ErrorCode.PARTITION_QUARANTINED or log.health.quarantined is not None:
            return MillstreamError(error.code, error.detail)  # A copy, because it is raised from `error`.
        segments = log.segments
        if is_whole and any(s.failed is None and error.detail.startswith(s.path) for s in segments):
            return log.quarantine(error.detail)
    elif isinstance(error, FileNotFoundError) and is_whole:
        missing = next((s for s in log.segments if s.path == error.filename and s.size_bytes), None)
        if missing is not None:
            return log.quarantine(
                f"{missing.path} is missing; it held offsets {missing.base_offset}..{missing.next_offset}"
            )
    return unreadable(log, error.detail if isinstance(error, MillstreamError) else error)


def unreadable(log: "Log", cause: OSError | str) -> MillstreamError:
    """Report a failed read that may succeed later, and return the error to raise."""
    return log.health.unreadable(cause) if log.is_deleted else log.health.read_failed(cause)
