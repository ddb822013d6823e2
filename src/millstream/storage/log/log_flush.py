"""Begins the flushes of one log: captures what a flush covers, for group commit and for the data directory.

A worker does the flush. The log then applies its result (`Log.flushed`, `Log.journal_flushed`, `Log.flush_failed`) and
reports it to the log's listener (`Log.report_flush`).

Invariant: a flush in place covers every batch that is written when it is captured, so the journal gets none of them.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.storage.log.flush_state import FlushCapture, JournalCapture

if TYPE_CHECKING:
    from millstream.storage.log.log import Log


class LogFlush:
    """The part of a log that begins its flushes."""

    __slots__ = ("_log",)

    def __init__(self, log: "Log") -> None:
        self._log = log

    # Rounds of group commit.

    def begin_round(self) -> bool:
        """Write the buffered batches. Return False if the log cannot be flushed; its listener is notified then."""
        log, health = self._log, self._log.health
        try:
            log.write_buffered()
        except MillstreamError:
            return False
        if health.is_fenced or health.quarantined is not None:
            log.report_flush(health.storage_error(health.broken or "quarantined"))
            return False
        return True

    def capture(self) -> FlushCapture:
        """Capture everything that is written, for a flush in place."""
        self._log.flush_state.drop_pending()
        capture = self._capture(closed_only=False)
        assert capture.end_offset == self._log.written_offset, "a flush in place covers everything that is written"
        return capture

    def capture_for_journal(self) -> JournalCapture | None:
        """Take the entries that make the log flushed to its end once the journal has them; None if it cannot."""
        log = self._log
        entries = log.flush_state.take_pending(log.flushed_offset)
        if not entries:
            return None
        active = log.segments[-1]
        return JournalCapture(log.flush_state.generation, active.end.offset, (active, active.end.position), entries)

    # Flushes of the data directory.

    def capture_in_background(self, *, closed_only: bool) -> FlushCapture | None:
        """Capture what is unflushed; None while a segment needs repair.

        With `closed_only`, the kernel decides when to write the active segment.
        """
        self._log.flush_state.mark_clean()
        if any(segment.failed is not None for segment in self._log.segments):
            return None
        return self._capture(closed_only=closed_only)

    def request_in_background(self) -> None:
        """Have the data directory flush what recovery left unflushed."""
        if self._log.flush_state.unflushed or self._log.flush_state.unsynced_names:
            self._log.flush_state.mark_dirty()

    def request_last(self) -> None:
        """Write the buffered batches, and have the data directory flush the log for the last time."""
        with suppress(MillstreamError):
            self._log.write_buffered()
        self._log.flush_state.mark_dirty()

    def _capture(self, *, closed_only: bool) -> FlushCapture:
        log, state = self._log, self._log.flush_state
        segments, end_offset = log.segments, log.written_offset
        parts = [(segment, segment.end) for segment in state.unflushed]
        position = None
        if closed_only:
            end_offset = parts[-1][1].offset if parts else log.flushed_offset
        elif segments:
            active = segments[-1]
            position = (active, active.end.position)
            if active.flushed.position < active.end.position:
                parts.append((active, active.end))
        names = list(state.unsynced_names)
        return FlushCapture(log.path, state.generation, end_offset, position, parts, names, not state.is_named)
