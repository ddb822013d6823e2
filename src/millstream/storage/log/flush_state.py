"""Tracks which parts of one log are not on stable storage yet, and what a flush of them covers.

A flush has three steps: the event loop captures the state, a worker flushes, and the event loop applies the result. If
the log is fenced in between, its generation changes and the result is ignored.

Invariant: the pending journal entries cover consecutive offsets up to the log's written_offset. If they would exceed
JOURNAL_BYTES_MAX, there are none.
"""

import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.seams.disk import Buffer, Disk
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.segment import FlushMark, Segment, SegmentState

JOURNAL_BYTES_MAX = 64 * 1024
"""A log's pending appends go into the journal up to this size. Flushing more in place is cheaper."""


class FlushCapture(Struct, eq=False):
    """The written end of a log, and its unflushed segments, at the begin of a flush."""

    log_path: str
    generation: int
    end_offset: Offset
    position: tuple[Segment, int] | None
    parts: list[tuple[Segment, FlushMark]]
    """Segments with unflushed bytes, oldest first, and the position up to which each is flushed."""
    unsynced_names: list[Segment]
    """Segments with an unflushed name."""
    names_log: bool
    """True when the log's own directory has an unflushed name."""

    def flush(self, disk: Disk, monotonic_s: Callable[[], float]) -> float | None:
        """Flush everything captured, and return the duration (blocking). Raise OSError.

        Return None if everything was flushed before.
        """
        segments = [segment for segment, mark in self.parts if segment.flushed.position < mark.position]
        if not segments and not self.unsynced_names and not self.names_log:
            return None
        begun_s = monotonic_s()
        for segment in segments:
            segment.flush()
        if self.unsynced_names:
            disk.flush_directory(self.log_path)
        if self.names_log:
            disk.flush_directory(os.path.dirname(self.log_path))
        return monotonic_s() - begun_s

    def save_indexes(self) -> None:
        """Write the index files of the closed segments (blocking)."""
        for segment, _ in self.parts:
            if segment.is_closed:
                segment.save_index()


class JournalCapture(NamedTuple):
    """The written end of a log at the time when its pending entries were taken for the journal."""

    generation: int
    end_offset: Offset
    position: tuple[Segment, int]
    entries: list[JournalEntry]


class FlushState:
    """The unflushed parts of one log. Only the log and its `LogFlush` change it."""

    __slots__ = (
        "_dirtied",
        "_key",
        "_pending",
        "_pending_bytes",
        "generation",
        "is_dirty",
        "is_named",
        "unflushed",
        "unsynced_names",
    )

    def __init__(self, key: PartitionKey, dirtied: Callable[[], None]) -> None:
        """`dirtied` is called when there is something to flush or to checkpoint."""
        self.unflushed: list[Segment] = []
        """Closed segments that were not flushed to their end when they were closed, oldest first."""
        self.unsynced_names: list[Segment] = []
        """Segments whose file names have not been flushed yet."""
        self.is_named = False
        """True once the name of the log's own directory has been flushed."""
        self.generation = 0
        """Increases when the log is fenced, so that the result of an earlier flush is ignored."""
        self.is_dirty = False
        """True when `dirtied` was called and the data directory has not flushed the log since."""
        self._key = key
        self._dirtied = dirtied
        self._pending: list[JournalEntry] = []
        self._pending_bytes = 0

    # Transitions.

    def mark_dirty(self) -> None:
        """Report to the data directory that there is something to flush or to checkpoint."""
        self.is_dirty = True
        self._dirtied()

    def mark_clean(self) -> None:
        """Note that the data directory flushes the log now. The next change is reported again."""
        self.is_dirty = False

    def written(self, *, segment_base: int, position: int, base_offset: int, next_offset: int, batches: Buffer) -> None:
        """Keep a copy of what was written, for the journal."""
        self._pending_bytes += len(batches)
        if self._pending_bytes <= JOURNAL_BYTES_MAX:
            assert not self._pending or self._pending[-1].next_offset == base_offset, "no gap"
            self._pending.append(
                JournalEntry(self._key, segment_base, position, base_offset, next_offset, bytes(batches))
            )
        elif self._pending:
            self._pending = []

    def segment_created(self, segment: Segment, closed: Segment | None) -> None:
        assert closed is None or closed.end.position, "two segments would have one name"
        if closed is not None and closed.flushed.position < closed.end.position:
            self.unflushed.append(closed)
        self.unsynced_names.append(segment)

    def segments_dropped(self, kept: Sequence[Segment]) -> None:
        self.unflushed = [segment for segment in self.unflushed if segment in kept]

    def recovered(self, segments: Sequence[Segment], flushed: Mapping[int, SegmentState]) -> Offset:
        """Take over a recovered log whose last segments are not flushed. Return the offset up to which it is flushed.

        `flushed` maps the base offsets of these segments to their flushed states. Their names may be unflushed too.
        """
        left = [segment for segment in segments if segment.base_offset in flushed]
        for segment in left:
            segment.flush_only(flushed[segment.base_offset])
            if segment.is_closed and segment.flushed.position < segment.end.position:
                self.unflushed.append(segment)
            if not segment.flushed.position:
                segment.is_named = False
                self.unsynced_names.append(segment)
        return left[0].flushed.offset

    def directory_named(self) -> None:
        self.is_named = True

    def concluded(self, capture: FlushCapture) -> bool:
        """Apply the result of a flush. Return False and change nothing if the log was fenced meanwhile."""
        if capture.generation != self.generation:
            return False
        for segment, mark in capture.parts:
            segment.flush_to(mark)
        if self.unflushed:
            self.unflushed = [segment for segment in self.unflushed if segment.flushed.position < segment.end.position]
        if capture.unsynced_names:
            for segment in capture.unsynced_names:
                segment.is_named = True
            self.unsynced_names = [segment for segment in self.unsynced_names if not segment.is_named]
        if capture.names_log:
            self.is_named = True
        return True

    def drop_pending(self) -> None:
        """Drop the pending journal entries, because what was written so far needs no journal."""
        self._pending = []
        self._pending_bytes = 0

    def fenced(self) -> None:
        """Ignore the results of running flushes, and collect nothing more for the journal."""
        self.generation += 1
        self._pending = []
        self._pending_bytes = JOURNAL_BYTES_MAX + 1

    def rebuilt(self, kept: Sequence[Segment]) -> None:
        """Note that all segments and their names have been flushed. The repair has created all but the kept ones."""
        for segment in kept:
            segment.is_named = True
        self.unflushed, self.unsynced_names = [], []
        self.drop_pending()
        self.mark_dirty()

    def take_pending(self, flushed_offset: int) -> list[JournalEntry]:
        """Take the journal entries that make the log flushed to its end. Return none if the journal cannot do so.

        Entries below `flushed_offset` are omitted: a journal must not contain bytes of a segment that was flushed
        before the journal began.
        """
        entries = [entry for entry in self._pending if entry.next_offset > flushed_offset]
        size_bytes = self._pending_bytes
        self.drop_pending()
        if not self.is_named or size_bytes > JOURNAL_BYTES_MAX or not entries:
            return []
        return [] if entries[0].base_offset > flushed_offset else entries
