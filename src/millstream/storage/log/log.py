"""One partition's log: its segments and the offsets up to which they are written and flushed.

Invariants: start_offset <= flushed_offset <= written_offset <= end_offset. The segments are consecutive without a gap.
The last one ends at written_offset, and appends go only to it. Batches from written_offset on are in the write buffer.
A batch below flushed_offset is in a flushed part of its segment or in the journal. Every transition that changes
segments or offsets asserts the order of the offsets, except an append to the write buffer, which only raises
end_offset.

Only the methods of a log and of its `flush` change it, and only on the event loop's thread; a worker that finds damage
calls `quarantine`. The cleaner and the data directory report to `cleaning` which files of an exchange exist; only the
log reports there that its segments have changed. `segments` is replaced, never changed in place, so that workers may
read while the event loop appends.

The log's directory contains `<base offset>.log` and `.index` files (see `segment`, `sparse_index`) and
`<name>.snapshot` files (see `snapshot`). During compaction it also has `.cleaned` files and `exchange` (see
`segment_exchange`). After a crash, `.cut` files may keep what recovery removed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset, ProducerId
from millstream.model.names import PartitionKey
from millstream.records.header import BatchHeader
from millstream.seams.clock import Clock
from millstream.seams.disk import Buffer, DiskFile
from millstream.storage.cleaning.cleaning_state import CleaningState
from millstream.storage.disk_reserve import DiskReserve
from millstream.storage.flush.end_marks import EndMarks
from millstream.storage.flush.flush_figures import FlushFigures
from millstream.storage.log.flush_state import FlushCapture, FlushState, JournalCapture
from millstream.storage.log.log_flush import LogFlush
from millstream.storage.log.log_health import LogHealth
from millstream.storage.log.log_label import LogLabel
from millstream.storage.log.log_listener import NOBODY, LogListener
from millstream.storage.log.log_reader import LogReader
from millstream.storage.log.log_scan import LogScan
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.log.segment import Segment, SegmentState
from millstream.storage.log.segment_factory import SegmentFactory, replaced, split_below
from millstream.storage.log.sparse_index import SparseIndex
from millstream.storage.log.write_buffer import BUFFERED_BYTES_MAX, WriteBuffer
from millstream.storage.recovery.disk_errors import DiskErrorLog

if TYPE_CHECKING:
    from millstream.storage.recovery.log_recovery import LogPlan


class Log:
    """Appends and reads whole batches. The store creates it."""

    def __init__(
        self,
        key: PartitionKey,
        path: str,
        settings: LogSettings,
        *,
        files: OpenFiles,
        clock: Clock,
        journaled: bool,
        dirtied: Callable[["Log"], None],
        request_flush: Callable[["Log"], None],
        marks: EndMarks,
        figures: FlushFigures,
        reserve: DiskReserve,
        trouble: DiskErrorLog,
    ) -> None:
        self.key = key
        self.path = path
        self.settings = settings
        self.files, self.figures = files, figures
        self.start_offset = self.end_offset = self.flushed_offset = Offset(0)
        self.flushed_position: tuple[Segment, int] | None = None
        """Segment and position at which flushed_offset begins, or None if unknown. It saves readers a search."""
        self.segments: list[Segment] = []
        self._closed_bytes = 0
        self.deleted_segments: list[Segment] = []
        """Segments below start_offset. Their files are removed once the new start is on disk."""
        self.truncations = 0
        """Number of truncations since the start of the broker."""
        self.is_deleted = False
        self.cleaning = CleaningState()
        self.label = LogLabel(key, path)
        self.health = LogHealth(self.label, clock, trouble)
        self.flush_state = FlushState(key, partial(dirtied, self))
        self.flush = LogFlush(self)
        self.reader = LogReader(self)
        self.scan = LogScan(self)
        self._buffer = WriteBuffer()
        self._listener: LogListener = NOBODY
        self._factory = SegmentFactory(path, files, clock)
        self.waits_for_flush = journaled
        """True when the flush policy acknowledges an append only after its flush."""
        self._request_flush = request_flush
        self._marks, self._reserve = marks, reserve

    def __repr__(self) -> str:
        return f"<Log {self.path} {self.start_offset}..{self.flushed_offset}..{self.end_offset}>"

    @property
    def size_bytes(self) -> int:
        """Size of the segments. The write buffer does not count. It walks no segments, since each scrape reads it."""
        return self._closed_bytes + self.segments[-1].size_bytes if self.segments else 0

    @property
    def written_offset(self) -> Offset:
        return self.segments[-1].end.offset if self.segments else self.end_offset

    @property
    def acknowledged_offset(self) -> Offset:
        """The offset below which the flush policy lets appends be acknowledged."""
        return self.flushed_offset if self.waits_for_flush else self.end_offset

    def _replace_segments(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._closed_bytes = sum(segment.size_bytes for segment in segments[:-1])  # Only the last one still grows.

    def _check(self) -> None:
        assert self.start_offset <= self.flushed_offset <= self.written_offset <= self.end_offset, (
            f"out of order: {self}"
        )

    def listen(self, listener: LogListener) -> None:
        self._listener = listener

    def configure(self, settings: LogSettings) -> None:
        self.settings = settings

    # Appending.

    def append(self, batch: memoryview, header: BatchHeader) -> Offset:
        """Append a batch that is stamped with end_offset, and request a flush if the flush policy requires one.

        Return the new end offset. The append is flushed once flushed_offset has reached it. The batch is written at
        once or buffered. The listener is notified when it is written. Raises PARTITION_QUARANTINED, or
        KAFKA_STORAGE_ERROR if the disk fails, until the log is repaired.
        """
        if not self.waits_for_flush:
            self._write(batch, (header,))
            return self.end_offset
        buffer, health = self._buffer, self.health
        buffered_bytes = buffer.size_bytes
        size = buffered_bytes + len(batch)
        if size > BUFFERED_BYTES_MAX or size > self.settings.segment_bytes or not self.segments:
            self.append_run(batch, (header,))
            self._request_flush(self)
            return self.end_offset
        if health.broken is not None or health.quarantined is not None or self._reserve.is_released:
            self._check_usable()
        buffer.add(batch, header)
        end_offset = self.end_offset = Offset(self.end_offset + header.last_offset_delta + 1)
        if not buffered_bytes:  # The flush that the first buffered batch requested writes and flushes all of them.
            self._request_flush(self)
        return end_offset

    def _check_usable(self) -> None:
        self.health.check()
        if self._reserve.is_released:
            raise self.health.storage_error(
                "the disk is full; writes are refused until there is space (delete topics, or shorten retention)"
            )

    def append_run(self, batches: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write batches that are stamped with the offsets from end_offset on, all into one segment.

        The caller requests their flush. Raises as `append` does; then the log contains none of the batches.
        """
        if self._buffer.size_bytes:
            self.write_buffered()
        self._write(batches, headers)

    def write_buffered(self) -> None:
        """Write the buffered batches. Raise KAFKA_STORAGE_ERROR if the disk fails; then the batches are lost."""
        if not self._buffer.size_bytes:
            return
        run = self._buffer.take(written_offset=self.written_offset, end_offset=self.end_offset)
        self.end_offset = self.written_offset
        try:
            self._write(run.data, run.headers)
        except MillstreamError as error:
            self._listener.failed(self.end_offset, error)
            raise

    def has_buffered(self, producer_id: ProducerId) -> bool:
        """Return True if a batch of this producer is in the write buffer."""
        return producer_id in self._buffer.producer_ids

    def request_flush(self) -> bool:
        """Request a flush of everything appended, and return True; its result goes to the listener.

        Return False if the flush policy requires no flush, or everything is flushed.
        """
        if not self.waits_for_flush or self.flushed_offset == self.end_offset:
            return False
        self._request_flush(self)
        return True

    def _write(self, batches: Buffer, headers: Sequence[BatchHeader]) -> None:
        health = self.health
        if health.broken is not None or health.quarantined is not None or self._reserve.is_released:
            self._check_usable()
        segments = self.segments
        segment = segments[-1] if segments else self.roll()
        position = segment.end.position
        settings = self.settings
        if position and (position + len(batches) > settings.segment_bytes or self._factory.is_old(segment, settings)):
            segment = self.roll()
            position = 0
        base_offset = self.end_offset
        assert segment.end.offset == base_offset, "the active segment ends where the log ends"
        # Under the other policies each batch is a write, and measuring it costs more than 1 % of its request.
        begun_s = self.figures.monotonic_s() if self.waits_for_flush else 0.0
        try:
            segment.append(batches, headers)
        except OSError as error:
            failure = health.write_failed(error)
            self.flush_state.mark_dirty()
            raise failure from error
        if health.is_refusing:
            health.write_succeeded()
        end_offset = self.end_offset = segment.end.offset
        assert self.start_offset <= self.flushed_offset <= base_offset < end_offset, f"out of order: {self}"
        if self.waits_for_flush:
            self.figures.appended(self.figures.monotonic_s() - begun_s, batches=len(headers))
            self.flush_state.written(
                segment_base=segment.base_offset,
                position=position,
                base_offset=base_offset,
                next_offset=end_offset,
                batches=batches,
            )
        elif not position:  # Recovery must notice that the newest segment is missing.
            self._marks.record(self.key, end_offset)
        if not self.flush_state.is_dirty:
            self.flush_state.mark_dirty()
        self._listener.written(headers)

    def roll(self) -> Segment:
        """Close the active segment and begin the next. Raise KAFKA_STORAGE_ERROR; then nothing has changed."""
        self.write_buffered()
        try:
            segment = self._factory.fresh(self.end_offset, self.settings)
        except OSError as error:
            raise self.health.refused(error) from error
        closed = self.segments[-1] if self.segments else None
        if closed is not None:
            closed.rolled()
        self.flush_state.segment_created(segment, closed)
        self._replace_segments([*self.segments, segment])
        self.flush_state.mark_dirty()
        self._check()
        return segment

    # Flushing.

    def flushed(self, capture: FlushCapture) -> bool:
        """Apply a finished flush. Return False if the log was fenced meanwhile. The caller notifies the listener."""
        if not self.flush_state.concluded(capture):
            return False
        self._flushed_to(capture.end_offset, capture.position)
        self._mark_flushed(capture.end_offset)
        if self.flushed_offset == self.end_offset:
            self.flush_state.drop_pending()
        return True

    def journal_flushed(self, capture: JournalCapture) -> None:
        """Apply a finished flush of the journal with the captured entries. The caller notifies the listener."""
        if capture.generation == self.flush_state.generation:
            self._flushed_to(capture.end_offset, capture.position)
            self._mark_flushed(capture.end_offset)

    def _flushed_to(self, offset: Offset, position: tuple[Segment, int] | None) -> None:
        if offset > self.flushed_offset:
            self.flushed_offset = offset
            self.flushed_position = position
        self._check()

    def _mark_flushed(self, offset: Offset) -> None:
        if self.waits_for_flush:
            self._marks.advance(self.key, offset)

    def report_flush(self, error: BaseException | None) -> None:
        """Notify the listener that a flush has ended; `error` is None if it succeeded."""
        if error is not None:
            self._listener.failed(self.flushed_offset, error)
            return
        unmarked = self._marks.save()  # Before the acknowledgement, for the marks of all logs in this round.
        if unmarked is None:
            self._listener.flushed()
        else:
            self._listener.failed(Offset(0), self.health.refused(unmarked))

    # Failure and repair.

    def refused(self, error: OSError) -> MillstreamError:
        """Note that the disk refused an operation on the log's files. Return the error to raise."""
        return self.health.refused(error)

    def quarantine(self, reason: str) -> MillstreamError:
        """Refuse all operations, because acknowledged data is lost. Return the error to raise.

        Workers may call this too, because reads detect the damage.
        """
        return self.health.quarantine(reason)

    def flush_failed(self, error: OSError) -> None:
        """Fence the log: it refuses appends until it is repaired, and ignores the results of running flushes."""
        self.health.refused(error)
        self._fenced(error)

    def _fenced(self, cause: OSError | str) -> None:
        self.flush_state.fenced()
        self.health.fenced(cause)
        if self._buffer.size_bytes:
            self._buffer.take(written_offset=self.written_offset, end_offset=self.end_offset)
            self.end_offset = self.written_offset
        self._check()
        self._listener.failed(self.flushed_offset, self.health.storage_error(cause))

    def rebuilt(self, kept: Sequence[Segment], replaced: Sequence[Segment], states: Sequence[SegmentState]) -> bool:
        """Replace all segments after the kept ones by new, flushed files. Return True if the log was truncated."""
        for segment in replaced:
            segment.forget()
        self._replace_segments([*kept, *self._factory.stored(states, self.settings)])
        is_truncated = self.written_offset < self.end_offset
        self.end_offset = self.written_offset
        self.flush_state.rebuilt(kept)
        self.reader = LogReader(self)  # The old reader's remembered positions are no longer valid.
        self.flushed_position = None
        self._flushed_to(self.end_offset, None)
        self._marks.advance(self.key, self.end_offset)
        self.report_flush(None)
        if is_truncated:
            self.truncations += 1
            self._listener.truncated()
        return is_truncated

    def repaired(self) -> None:
        """Accept appends again, because the files are intact again."""
        self.health.repaired()

    def deleted(self) -> None:
        self.is_deleted = True
        self._fenced("deleted")

    def closed(self) -> None:
        """Release the files and refuse everything, because the broker stops."""
        self.health.stopped()
        for segment in self.segments:
            segment.forget()

    # Creation and recovery.

    def created(self) -> None:
        """Note that the directory of a new log was created and its name flushed.

        From now on the log has a mark, so that recovery notices if the mark is lost.
        """
        self.flush_state.directory_named()
        self._marks.record(self.key, Offset(0))

    def recovered(self, plan: "LogPlan") -> None:
        """Take over the state that recovery found."""
        self.flush_state.directory_named()
        if plan.quarantined is not None:
            self.health.recovered_as_quarantined(plan.quarantined)
        if plan.may_lose_acknowledged:
            self.health.recovered_with_possible_loss()
        if plan.is_exchanged:
            self.cleaning.recovered()
        # A quarantined log may be readable only up to an offset below its start.
        is_readable = plan.quarantined is None or plan.start_offset <= plan.end_offset
        self._replace_segments(self._factory.stored(plan.segments, self.settings) if is_readable else [])
        self.start_offset, self.end_offset = plan.start_offset, max(plan.start_offset, plan.end_offset)
        has_unflushed = plan.unflushed and is_readable
        flushed = self.flush_state.recovered(self.segments, plan.unflushed) if has_unflushed else plan.end_offset
        self._flushed_to(max(plan.start_offset, flushed), None)

    # Removing.

    def trim(self, new_start: Offset) -> None:
        """Move the log start to `new_start`. The next checkpoint removes the files of segments before it."""
        if not self.start_offset <= new_start <= self.end_offset:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {new_start} is not within {self.start_offset}..{self.end_offset} of "
                f"{self.path.rpartition('/')[2]}, so it cannot become the log start offset",
            )
        if new_start == self.start_offset:
            return
        if new_start > self.written_offset:
            self.write_buffered()
        if self.health.broken is None and not self.cleaning.lock.locked():
            self._drop_segments(new_start)
        self.start_offset = new_start
        if not self.is_deleted:
            self._marks.move_start(self.key, new_start)
        self._flushed_to(max(new_start, self.flushed_offset), None)
        self.flush_state.mark_dirty()
        self._listener.flushed()

    def _drop_segments(self, new_start: Offset) -> None:
        if new_start == self.end_offset and self.segments[-1].size_bytes:
            self.roll()
        gone, kept = split_below(self.segments, new_start)
        self.flush_state.segments_dropped(kept)
        self._replace_segments(kept)
        self.deleted_segments = [*self.deleted_segments, *gone]

    def segments_removed(self, removed: Sequence[Segment]) -> None:
        """Forget deleted segments whose files have been removed."""
        self.deleted_segments = [segment for segment in self.deleted_segments if segment not in removed]

    def roll_if_old(self) -> None:
        """Close the active segment if it has reached its maximum age. Raises as `roll` does."""
        active = self.segments[-1]
        if active.size_bytes and self._factory.is_old(active, self.settings):
            self.roll()

    def drop_trimmed(self) -> None:
        """Drop the segments that an earlier trim could not drop."""
        if self.segments[0].next_offset <= self.start_offset and len(self.segments) > 1:
            self._drop_segments(self.start_offset)
            self.flush_state.mark_dirty()
            self._check()

    def exchanged(self, old: Sequence[Segment], state: SegmentState, file: DiskFile, index: SparseIndex) -> Segment:
        """Replace consecutive old segments by a new one, whose file still has another name. Reads continue."""
        new = self._factory.rewritten(state, self.settings, file, index)
        self._replace_segments(replaced(self.segments, old, new))
        for segment in old:
            segment.forget()
        self.cleaning.decided()
        self.reader = LogReader(self)  # The old reader's remembered positions are no longer valid.
        self.flush_state.mark_dirty()
        self._check()
        return new

    def exchange_finished(self) -> list[Segment]:
        """Note that the files of a decided exchange are in place. Return the new segments."""
        self.cleaning.done()
        new = [segment for segment in self.segments if segment.pinned is not None]
        for segment in new:
            segment.moved_into_place()
        return new
