"""One flush of one log: what it covers is noted before, concluded after; in between a worker does it."""

import os.path

from msgspec import Struct

from millstream.seams.disk import Disk
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.log import JOURNAL_BYTES_MAX, Log
from millstream.storage.log.segment import FlushMark, Segment


class FlushCapture(Struct, eq=False):
    """How far a log had got when a flush was begun."""

    log: Log
    generation: int
    end_offset: int
    place: tuple[Segment, int] | None
    parts: list[tuple[Segment, FlushMark]]
    """Segments with unflushed bytes, oldest first, and how far the flush reaches."""
    unnamed: list[Segment]
    """Segments with an unflushed name."""
    names_log: bool
    """Whether the log's own directory has an unflushed name."""

    @classmethod
    def of(cls, log: Log, *, closed_only: bool = False) -> "FlushCapture":
        """What is not flushed of `log` now; with `closed_only`, the active segment is left to the kernel."""
        parts = [(segment, segment.end) for segment in log.unflushed]
        if log.segments and not closed_only:
            active = log.segments[-1]
            if active.flushed.position < active.end.position:
                parts.append((active, active.end))
        place = (log.segments[-1], log.segments[-1].end.position) if log.segments else None
        end_offset = log.written_offset
        if closed_only:
            place, end_offset = None, parts[-1][1].offset if parts else log.durable_offset
        return cls(log, log.generation, end_offset, place, parts, list(log.unnamed), not log.is_named)

    def flush(self, disk: Disk) -> None:
        """Bring it to stable storage (blocking); raises OSError."""
        for segment, mark in self.parts:
            if segment.flushed.position < mark.position:
                segment.flush()
        if self.unnamed:
            disk.flush_directory(self.log.path)
        if self.names_log:
            disk.flush_directory(os.path.dirname(self.log.path))

    def conclude(self) -> bool:
        """On the event loop, after `flush` succeeded; false when the log was fenced meanwhile."""
        log = self.log
        if log.generation != self.generation:
            return False
        for segment, mark in self.parts:
            segment.flush_to(mark)
        if log.unflushed:
            log.unflushed = [segment for segment in log.unflushed if segment.flushed.position < segment.end.position]
        for segment in self.unnamed:
            segment.is_named = True
        if self.unnamed:
            log.unnamed = [segment for segment in log.unnamed if not segment.is_named]
        if self.names_log:
            log.is_named = True
        log.advance(self.end_offset, self.place)
        if log.durable_offset == log.end_offset:
            log.pending = []
            log.pending_bytes = 0
        return True


def take_pending(log: Log) -> list[JournalEntry]:
    """The bytes the journal would have to take to make all of `log` durable; none when it cannot or should not.

    What is durable already is left out: nothing may be in a journal of a segment that was flushed before it began.
    """
    durable = log.durable_offset
    pending, size = [part for part in log.pending if part.next_offset > durable], log.pending_bytes
    log.pending, log.pending_bytes = [], 0
    if not log.is_named or size > JOURNAL_BYTES_MAX or not pending or pending[0].base_offset > log.durable_offset:
        return []
    return pending
