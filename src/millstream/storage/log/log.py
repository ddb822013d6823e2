"""One partition's log: its segments, its ends, and what may still be lost of it.

Invariants: start_offset <= durable_offset <= written_offset <= end_offset; the segments follow one another without a
gap, the last one ends at written_offset and is the only one appended to; what lies behind it waits to be written (see
`write_buffer`); a batch below durable_offset lies in a flushed part of its segment or in the journal. All of it is
changed by the event loop's thread alone. `segments` is replaced, never changed in place, so that workers may read while
the loop appends.

The log's directory holds `<base offset>.log` and `.index` files (see `segment`, `sparse_index`), `<name>.snapshot`
files (see
`snapshot`), while it is cleaned `.cleaned` files and `exchange` (see `segment_exchange`), and after a crash perhaps
`.cut` files with what recovery took away.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import PartitionKey
from millstream.records.header import BatchHeader
from millstream.seams.clock import Clock
from millstream.seams.disk import Buffer
from millstream.storage import snapshot
from millstream.storage.cleaning.cleanable_range import CleanedRange
from millstream.storage.cleaning.retention import expired_segments
from millstream.storage.cleaning.segment_exchange import SwapStage
from millstream.storage.flush.flush_round import FlushRound
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.log_reader import LogReader, Stretch
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.log.segment import Segment, SegmentState
from millstream.storage.log.write_buffer import GATHERED_BYTES_MAX, WriteBuffer
from millstream.storage.recovery.disk_errors import DiskErrorLog

_logger = logging.getLogger(__name__)

JOURNAL_BYTES_MAX = 64 * 1024
"""What waits for one flush of one log goes into the journal up to this size; more is cheaper to flush in place."""


class LogSettings(Struct, frozen=True):
    """What a topic says about its logs; -1 sets no bound."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    index_interval_bytes: int = 4096
    delete: bool = True
    """Whether age and size remove messages."""
    compact: bool = False
    """Whether only the last message of each key is kept; the rest of the settings says when, see `cleanable_range`."""
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5


class Log:
    """Append and read whole batches. Made by the store."""

    def __init__(
        self,
        key: PartitionKey,
        path: str,
        settings: LogSettings,
        *,
        files: OpenFiles,
        clock: Clock,
        journaled: bool,
        careful: bool,
        dirtied: Callable[["Log"], None],
        request_commit: Callable[["Log"], FlushRound],
        abandon_commit: Callable[["Log", MillstreamError], None],
        trouble: DiskErrorLog,
    ) -> None:
        self.key = key
        self.path = path
        self.settings = settings
        self.start_offset = 0
        self.end_offset = 0
        self.durable_offset = 0
        self.durable_place: tuple[Segment, int] | None = None
        """Segment and position at which durable_offset begins, where known: it spares readers a search."""
        self.segments: list[Segment] = []
        self.unflushed: list[Segment] = []
        """Closed segments that were not flushed to their end when they were closed, oldest first."""
        self.unnamed: list[Segment] = []
        """Segments whose file names have not been flushed yet."""
        self.doomed: list[Segment] = []
        """Segments below start_offset, whose files go once the new start is on disk."""
        self.exchanging = asyncio.Lock()
        """Held by whoever takes segments away or puts others in their place, over all that this takes."""
        self.exchange_stage = SwapStage.UNKNOWN
        self.cleaned: CleanedRange | None = None
        """How far compaction has come; None until that was looked up, see `cleanable_range`."""
        self.broken: OSError | str | None = None
        self.is_fenced = False
        """Broken by a failed flush: nothing of it counts as durable any more until it has been read back."""
        self.quarantined: str | None = None
        self.refused_s: float | None = None
        """When, by the monotonic clock, the disk last refused a write or a flush."""
        self.is_deleted = False
        self.is_dirty = False
        self.is_named = False
        """Whether the directory's own name has been flushed."""
        self.generation = 0
        """Goes up when the log is fenced, so that what was begun before cannot conclude anything afterwards."""
        self.request_commit = request_commit
        """Where to ask for the next flush of this log."""
        self.on_durable: Callable[[Log], None] | None = None
        """Called on the event loop whenever durable_offset has risen."""
        self.on_cut: Callable[[Log], None] | None = None
        """Called when end_offset went back after a failed flush: whoever derived state from the log makes it anew."""
        self.pending: list[JournalEntry] = []
        """What the next flush must make durable, kept for the journal."""
        self.pending_bytes = 0
        self.write_buffer = WriteBuffer(self, abandon_commit, GATHERED_BYTES_MAX if journaled else 0)
        self.files = files
        self.clock = clock
        self._journaled = journaled
        self._careful = careful
        self._dirtied = dirtied
        self._trouble = trouble
        self._is_refusing = False
        """Whether the last write was refused by the disk."""
        self.reader = LogReader(self)

    def __repr__(self) -> str:
        return f"<Log {self.path} {self.start_offset}..{self.durable_offset}..{self.end_offset}>"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def written_offset(self) -> int:
        return self.segments[-1].end.offset if self.segments else self.end_offset

    # Writing.

    def append(self, batches: Buffer, headers: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write batches that are stamped with the offsets from end_offset on, all into one segment.

        Nothing is durable by this; see `LogStore.commit`. Raises KAFKA_STORAGE_ERROR when the disk refuses, and until
        it is well again; then none of the batches counts.
        """
        if self.write_buffer.parts:
            self.write_buffer.write()
        if self.broken is not None or self.quarantined is not None:
            self.refuse()
        size = len(batches)
        segments = self.segments
        segment = segments[-1] if segments else self.roll()
        position = segment.end.position
        if position and (position + size > self.settings.segment_bytes or self._is_old(segment)):
            segment = self.roll()
            position = 0
        base_offset = self.end_offset
        assert segment.end.offset == base_offset, "the active segment ends where the log ends"
        try:
            segment.append(batches, headers)
        except OSError as error:
            self.broken = error
            self.mark_dirty()
            raise self.refused(error) from error
        if self._is_refusing:
            self._is_refusing = False
            self._trouble.works(self.path)
        self.end_offset = segment.end.offset
        if self._journaled:
            self.pending_bytes += size
            if self.pending_bytes <= JOURNAL_BYTES_MAX:
                span = (segment.base_offset, position, base_offset, self.end_offset)
                self.pending.append(JournalEntry(self.key, *span, bytes(batches)))
            elif self.pending:
                self.pending = []
        if not self.is_dirty:
            self.mark_dirty()

    def _is_old(self, segment: Segment) -> bool:
        age_ms = self.settings.segment_ms
        return age_ms >= 0 and self.clock.wall_ms() - segment.created_ms >= age_ms

    def roll(self) -> Segment:
        """Close the active segment and begin the next; raises KAFKA_STORAGE_ERROR, and then nothing has changed."""
        self.write_buffer.write()
        try:
            segment = Segment.fresh(
                self.path, self.end_offset, self.files, self.settings.index_interval_bytes, self.clock.wall_ms()
            )
        except OSError as error:
            raise self.refused(error) from error
        segment.is_careful = self._careful
        if self.segments:
            closed = self.segments[-1]
            closed.is_closed = True
            if closed.flushed.position < closed.end.position:
                self.unflushed.append(closed)
        self.segments = [*self.segments, segment]
        self.unnamed.append(segment)
        self.mark_dirty()
        return segment

    def stored_segment(self, state: SegmentState) -> Segment:
        """A segment of this log whose file is there and flushed; it is for the caller to put it among `segments`."""
        segment = Segment(self.path, state, self.files, self.settings.index_interval_bytes)
        segment.is_careful = self._careful
        return segment

    def mark_dirty(self) -> None:
        self.is_dirty = True
        self._dirtied(self)

    def refuse(self) -> None:
        """Raise what stands against using this log, if something does."""
        if self.quarantined is not None:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, self.quarantined)
        if self.broken is not None:
            raise self.storage_error(self.broken)

    def storage_error(self, cause: OSError | str) -> MillstreamError:
        return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {cause}")

    def refused(self, cause: OSError) -> MillstreamError:
        """The disk took no write, or failed to flush one: remember and tell it. What to raise."""
        self.refused_s = self.clock.monotonic_s()
        self._is_refusing = True
        self._trouble.refused(self.path, cause)
        return self.storage_error(cause)

    def quarantine(self, reason: str) -> MillstreamError:
        """Something acknowledged is damaged or gone: refuse everything from now on. What to raise."""
        if self.quarantined is None:
            self.quarantined = reason
            _logger.error("a partition is quarantined", extra={"log": self.path, "why": reason})
        return MillstreamError(ErrorCode.PARTITION_QUARANTINED, self.quarantined)

    def read_failed(self, error: OSError | MillstreamError) -> MillstreamError:
        """What a failed read is answered. What should be there and is not is lost; other failures may pass."""
        is_whole = not (self.is_fenced or self.is_deleted)  # Else its files are being exchanged or removed.
        if isinstance(error, MillstreamError):
            if error.code is not ErrorCode.PARTITION_QUARANTINED or self.quarantined is not None:
                return MillstreamError(error.code, error.detail)  # Another one, since it is raised from this one.
            segments = self.segments
            if is_whole and any(s.failed is None and error.detail.startswith(s.path) for s in segments):
                return self.quarantine(error.detail)
        elif isinstance(error, FileNotFoundError) and is_whole:
            missing = next((s for s in self.segments if s.path == error.filename and s.size_bytes), None)
            if missing is not None:
                return self.quarantine(
                    f"{missing.path} is missing; it held offsets {missing.base_offset}..{missing.next_offset}"
                )
        return self.unreadable(error.detail if isinstance(error, MillstreamError) else error)

    def unclean(self, cause: OSError) -> None:
        """The log could not be compacted, which will be tried again."""
        if not self.is_deleted:
            self._trouble.unclean(self.path, cause)

    def unreadable(self, cause: OSError | str) -> MillstreamError:
        """What to raise when a read failed in a way that may pass."""
        if not self.is_deleted:
            self._trouble.unreadable(self.path, cause)
        return MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} cannot be read: {cause}")

    def advance(self, durable_offset: int, place: tuple[Segment, int] | None) -> None:
        """Everything before `durable_offset` is durable now."""
        if durable_offset > self.durable_offset:
            assert durable_offset <= self.end_offset, "no more is durable than was appended"
            self.durable_offset = durable_offset
            self.durable_place = place
            if self.on_durable is not None:
                self.on_durable(self)

    def fence(self, cause: OSError | str) -> None:
        """Take no more appends; flushes that are under way will conclude nothing."""
        self.generation += 1
        self.is_fenced = True
        self.broken = cause
        self.pending = []
        self.pending_bytes = JOURNAL_BYTES_MAX + 1
        self.write_buffer.drop(self.storage_error(cause))

    # Forgetting.

    def trim(self, new_start: int) -> None:
        """Forget what lies before `new_start`; whole segments give their space back after the next checkpoint."""
        if not self.start_offset <= new_start <= self.end_offset:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{new_start} is not within {self.start_offset}..{self.end_offset}"
            )
        if new_start == self.start_offset:
            return
        if self.broken is None and not self.exchanging.locked():
            self._drop_segments(new_start)
        self.start_offset = new_start
        self.advance(max(new_start, self.durable_offset), None)
        self.mark_dirty()

    def _drop_segments(self, new_start: int) -> None:
        if new_start == self.end_offset and self.segments[-1].size_bytes:
            self.roll()
        kept = [segment for segment in self.segments[:-1] if segment.next_offset > new_start]
        kept.append(self.segments[-1])
        gone = self.segments[: len(self.segments) - len(kept)]
        self.unflushed = [segment for segment in self.unflushed if segment in kept]
        self.segments = kept
        self.doomed.extend(gone)

    def apply_retention(self, now_ms: int, needed_from: int | None = None) -> int:
        """Roll an old segment, forget what is too old or too much, but nothing from `needed_from` on, which somebody
        has yet to read; how many segments went. Cheap: no reads."""
        if self.broken is not None or self.quarantined is not None or not self.segments:
            return 0
        if self.exchanging.locked():
            return 0
        if self.segments[-1].size_bytes and self._is_old(self.segments[-1]):
            self.roll()
        if self.segments[0].next_offset <= self.start_offset and len(self.segments) > 1:
            self._drop_segments(self.start_offset)  # Left by a trim that could not.
            self.mark_dirty()
        if not self.settings.delete:
            return 0
        limit = self.durable_offset if self._journaled else self.end_offset
        limit = min(limit, self.end_offset if needed_from is None else needed_from)
        count, new_start = expired_segments(self.segments, self.settings, now_ms, limit)
        if count:
            self.trim(max(new_start, self.start_offset))
        return count

    def exchange(self, old: Sequence[Segment], new: Segment) -> None:
        """Put `new` in the place of the `old` ones, which follow one another; readers go on either way."""
        first = self.segments.index(old[0])
        assert self.segments[first : first + len(old)] == list(old), "nobody else changes them meanwhile"
        self.segments = [*self.segments[:first], new, *self.segments[first + len(old) :]]
        for segment in old:
            segment.forget()
        self.forget_hints()
        self.mark_dirty()

    # Reading.

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
        """Whole batches from the one that contains `offset`, below `end_offset`; never waits for the disk.

        At most `max_bytes`, but always the first batch; b"" at the end; None when it is not in memory (see
        `read_cold`). Raises OFFSET_OUT_OF_RANGE, PARTITION_QUARANTINED, KAFKA_STORAGE_ERROR.
        """
        found = self.reader.read(offset, max_bytes, end_offset)
        return None if found is None else cast(bytes, found[0])

    def lend(self, offset: int, max_bytes: int, end_offset: int, part_bytes: int | None = None) -> Stretch | None:
        """As `read`, but many bytes, up to `part_bytes` where that is given, are left where they are, to be sent from
        there; with the offset that follows."""
        return self.reader.read(
            offset, max_bytes, end_offset, part_bytes=max_bytes if part_bytes is None else part_bytes
        )

    def read_cold(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """As `read`, waiting for the disk, and each batch's checksum is counted: for workers."""
        found = self.reader.read(offset, max_bytes, end_offset, cold=True)
        assert found is not None, "a cold read has no reason to give up"
        return cast(bytes, found[0])

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, time stamp) of the first record at or after the time, or None. Blocking: for workers."""
        try:
            return self.reader.offset_for_time(timestamp_ms)
        except (OSError, MillstreamError) as error:
            raise self.read_failed(error) from error

    def max_timestamp(self) -> tuple[int, int]:
        """(time stamp, offset) of the record with the largest time stamp, (-1, -1) without any. Blocking."""
        try:
            return self.reader.max_timestamp()
        except (OSError, MillstreamError) as error:
            raise self.read_failed(error) from error

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """The header of each batch from the one that contains `offset` on. Blocking: for workers."""
        try:
            yield from self.reader.headers_from(offset)
        except (OSError, MillstreamError) as error:
            raise self.read_failed(error) from error

    def forget_hints(self) -> None:
        """Segments were exchanged: positions that readers remember no longer hold."""
        self.reader = LogReader(self)

    # State that others keep beside the log.

    def save_snapshot(self, name: str, offset: int, payload: bytes) -> None:
        """Keep `payload`, the state after everything before `offset`, crash-safe. Blocking; raises OSError."""
        snapshot.save(self.files.disk, self.path, name, offset, payload)

    def load_snapshot(self, name: str) -> tuple[int, bytes] | None:
        """The last snapshot of that name, unless it speaks of offsets that the log does not have. Blocking."""
        found = snapshot.load(self.files.disk, self.path, name)
        return found if found is not None and found[0] <= self.end_offset else None
