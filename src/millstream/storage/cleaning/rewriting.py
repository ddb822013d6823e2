"""Writing a run of segments anew without some of their records: the one way to take records out of a log's middle.

Who wants records gone says so by a predicate on opened batches (`KeepPredicate`). A batch that loses nothing is copied
as it is; one that loses records is made anew with the rest; one that loses all becomes part of the filler that covers
its offsets (see `millstream.records.compaction`), unless somebody still needs its header. Batches that are no messages,
and such as cannot be opened, are copied.

Each step is bounded work for a worker; between two of them others may run, or the whole be given up.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.batch import DECODED_BYTES_MAX, batch_body
from millstream.records.compaction import OFFSETS_MAX, emptied, filler, reduced
from millstream.records.header import BatchHeader, Bytes, CorruptBatch, read_header
from millstream.seams.disk import Disk, DiskFile
from millstream.storage.cleaning.segment_exchange import cleaned_path
from millstream.storage.log.segment import NO_TIME, Segment, SegmentState
from millstream.storage.log.segment_scan import read_batches
from millstream.storage.log.sparse_index import SparseIndex

_WRITE_BYTES = 1024 * 1024


class RecordSelection(NamedTuple):
    """What becomes of a batch's records."""

    marks: bytearray
    """A byte for each record: 1 when it stays."""
    staying: int
    """How many stay."""
    horizon_ms: int | None = None
    """The delete horizon that the batch gets, if it is to get one."""


class KeepPredicate(Protocol):
    def __call__(self, header: BatchHeader, body: Bytes) -> RecordSelection:
        """Which records of an opened batch stay; CorruptBatch when it cannot be understood, then all do."""
        ...


NeedsHeader = Callable[[BatchHeader], bool]
"""Whether the header of a batch must stay though no record of it does."""


def is_opaque(header: BatchHeader) -> bool:
    """Whether a batch is copied whatever is in it."""
    return header.is_control or header.is_transactional


def batches_of(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a closed segment with its bytes (blocking); PARTITION_QUARANTINED when one is damaged."""
    try:
        yield from read_batches(segment.open(), 0, segment.size_bytes, segment.base_offset)
    except CorruptBatch as error:
        raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{segment.path}: {error.detail}") from error


class Rewriting:
    """Makes one segment of the first of some that follow one another, or of a few of them if they are small enough to
    be one. First `look`, unless `is_needed`; if it then is, `write`, and the `result` is there."""

    def __init__(
        self,
        disk: Disk,
        log_path: str,
        segments: Sequence[Segment],
        size_bytes_max: int,
        keep: KeepPredicate,
        needs_header: NeedsHeader,
    ) -> None:
        self.old: list[Segment] = []
        """Those that have been written anew."""
        self._segments = segments
        self._size_bytes_max = size_bytes_max
        self.is_needed = len(segments) > 1 and self._may_join(segments[0].size_bytes, segments[1])
        """Whether the result would differ from what is there."""
        self._log_path = log_path
        self._disk = disk
        self._keep = keep
        self._needs_header = needs_header
        self._run: tuple[int, int, int] | None = None
        """Offsets without a record that are not written yet, from and to, and their leader epoch."""
        self._output: _Output | None = None

    def look(self) -> Iterator[int]:
        """Find out whether anything would change; each step gives how many bytes it read."""
        for header, data in batches_of(self._segments[0]):
            changed = self._outcome(header, data)
            if changed is not data and not (changed is None and _is_filler(header)):
                self.is_needed = True
                return
            yield len(data)

    def write(self) -> Iterator[int]:
        """Write the new file and flush it; each step gives how many bytes it moved. Raises OSError."""
        path = cleaned_path(self._log_path, self._segments[0].base_offset)
        output = self._output = _Output(self._disk.open(path, create=True), self._segments[0])
        for segment in self._segments:
            if self.old and not self._may_join(output.size_bytes, segment):
                break
            self.old.append(segment)
            for header, data in batches_of(segment):
                outcome = self._outcome(header, data)
                if outcome is None:
                    self._extend_run(output, header)
                else:
                    self._end_run(output)
                    output.put(header if outcome is data else read_header(outcome), outcome)
                yield len(data) + (len(outcome) if outcome is not None else 0)
        self._end_run(output)
        assert output.offset == self.old[-1].next_offset, "the new segment covers what the old ones did"
        output.finish()

    def result(self) -> tuple[SegmentState, DiskFile, SparseIndex]:
        """The new segment: its numbers, its file and its index."""
        output = self._output
        assert output is not None, "it was written"
        created_ms = max(segment.created_ms for segment in self.old)
        return output.state(created_ms), output.file, output.index

    def _may_join(self, size_bytes: int, segment: Segment) -> bool:
        """Whether a segment of so many bytes may go on with the batches of another."""
        is_short = segment.next_offset - self._segments[0].base_offset <= OFFSETS_MAX
        return is_short and size_bytes + segment.size_bytes <= self._size_bytes_max

    def _outcome(self, header: BatchHeader, data: memoryview) -> Bytes | None:
        """The batch as it will be: `data` itself when nothing changes, None when nothing of it stays."""
        if is_opaque(header):
            return data
        if header.record_count == 0:
            return data if header.producer_id >= 0 and self._needs_header(header) else None
        try:
            body = batch_body(data, 0, header, limit_bytes=DECODED_BYTES_MAX, verify=False)
            kept = self._keep(header, body)
            if kept.staying == header.record_count and kept.horizon_ms is None:
                return data
            if kept.staying:
                return reduced(header, body, kept.marks, kept.horizon_ms)
        except CorruptBatch:
            return data
        return emptied(header) if header.producer_id >= 0 and self._needs_header(header) else None

    def _extend_run(self, output: "_Output", header: BatchHeader) -> None:
        if self._run is not None:
            first, _, epoch = self._run
            if epoch == header.leader_epoch and header.next_offset - first <= OFFSETS_MAX:
                self._run = (first, header.next_offset, epoch)
                return
            self._end_run(output)
        self._run = (header.base_offset, header.next_offset, header.leader_epoch)

    def _end_run(self, output: "_Output") -> None:
        if self._run is not None:
            batch = filler(*self._run)
            output.put(read_header(batch), batch)
            self._run = None


def _is_filler(header: BatchHeader) -> bool:
    return header.record_count == 0 and header.producer_id < 0


class _Output:
    """The new file, its index and what a checkpoint will know of it."""

    def __init__(self, file: DiskFile, first: Segment) -> None:
        file.truncate(0)
        self.file = file
        self.index = SparseIndex(first.base_offset, 0, first.index.interval_bytes)
        self.offset = self._base_offset = first.base_offset
        self.size_bytes = 0
        self._written = 0
        self._waiting: list[Bytes] = []
        self._time, self._time_offset = NO_TIME, first.base_offset

    def put(self, header: BatchHeader, data: Bytes) -> None:
        assert header.base_offset == self.offset, "no gap, and nothing twice"
        if self.size_bytes >= self.index.due:
            self.index.add(header.base_offset, self.size_bytes, self._time)
        if header.record_count and header.max_timestamp > self._time:
            self._time, self._time_offset = header.max_timestamp, header.last_offset
        self._waiting.append(data)
        self.size_bytes += len(data)
        self.offset = header.next_offset
        if self.size_bytes - self._written >= _WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        self._write()
        self.file.flush()

    def state(self, created_ms: int) -> SegmentState:
        return SegmentState(self._base_offset, self.offset, self.size_bytes, self._time, self._time_offset, created_ms)

    def _write(self) -> None:
        if self._waiting:
            self.file.write(self._waiting, self._written)
        self._waiting, self._written = [], self.size_bytes
