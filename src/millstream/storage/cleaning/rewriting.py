"""Rewrites consecutive segments without some of their records. Only this removes records from the middle of a log.

The caller selects records with a predicate on decoded batches (`KeepPredicate`). A batch that loses no record is copied
unchanged. A batch that loses some is encoded again with the rest. A batch that loses all becomes part of a filler that
covers its offsets (see `millstream.records.compaction`), unless its header is still needed. Control batches,
transactional batches and batches that cannot be decoded are copied unchanged.

Each step is a limited amount of work for a worker. The caller may pause or stop between two steps.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
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
    """The records of a batch that stay."""

    marks: bytearray
    """One byte per record: 1 if it stays."""
    staying: int
    """The number of records that stay."""
    horizon_ms: int | None = None
    """The delete horizon that the batch gets, or None to leave it unchanged."""


class KeepPredicate(Protocol):
    def __call__(self, header: BatchHeader, body: Bytes) -> RecordSelection:
        """Select the records of a decoded batch that stay. After CorruptBatch, all of them stay."""
        ...


NeedsHeader = Callable[[BatchHeader], bool]
"""Returns True if the header of a batch must stay although none of its records does."""


def is_opaque(header: BatchHeader) -> bool:
    """Return True if a batch is copied whatever it contains."""
    return header.is_control or header.is_transactional


def batches_of(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a closed segment with its bytes (blocking). Raise PARTITION_QUARANTINED at damage."""
    try:
        yield from read_batches(segment.open(), position=0, end=segment.size_bytes, next_offset=segment.base_offset)
    except CorruptBatch as error:
        raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{segment.path}: {error.detail}") from error


class Rewriting:
    """Rewrites the first of several consecutive segments, together with the following ones if the result is small.

    Call `look` unless `is_needed`. If `is_needed` is true then, call `write`, and take the `result`.
    """

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
        """The segments that have been rewritten."""
        self._segments = segments
        self._size_bytes_max = size_bytes_max
        self.is_needed = len(segments) > 1 and self._may_join(segments[0].size_bytes, segments[1])
        """True if the result would differ from the existing segments."""
        self._log_path = log_path
        self._disk = disk
        self._keep = keep
        self._needs_header = needs_header
        self._run: tuple[int, int, int] | None = None
        """Offsets without records that are not written yet (first, end) and their leader epoch."""
        self._output: _Output | None = None

    def look(self) -> Iterator[int]:
        """Find out whether the first segment would change. Each step yields the number of bytes read."""
        for header, data in batches_of(self._segments[0]):
            changed = self._outcome(header, data)
            if changed is not data and not (changed is None and _is_filler(header)):
                self.is_needed = True
                return
            yield len(data)

    def write(self) -> Iterator[int]:
        """Write the new file and flush it. Each step yields the number of bytes moved. Raise OSError."""
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
        """Return the new segment: its state, its file and its index."""
        output = self._output
        assert output is not None, "it was written"
        created_ms = max(segment.created_ms for segment in self.old)
        return output.state(created_ms), output.file, output.index

    def _may_join(self, size_bytes: int, segment: Segment) -> bool:
        """Return True if a segment of `size_bytes` may grow by the batches of `segment`."""
        is_short = segment.next_offset - self._segments[0].base_offset <= OFFSETS_MAX
        return is_short and size_bytes + segment.size_bytes <= self._size_bytes_max

    def _outcome(self, header: BatchHeader, data: memoryview) -> Bytes | None:
        """The new form of a batch: `data` itself if nothing changes, None if nothing of it stays."""
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
            base_offset, next_offset, leader_epoch = self._run
            batch = filler(base_offset=base_offset, next_offset=next_offset, leader_epoch=leader_epoch)
            output.put(read_header(batch), batch)
            self._run = None


def _is_filler(header: BatchHeader) -> bool:
    return header.record_count == 0 and header.producer_id < 0


class _Output:
    """The new file with its index and its segment state."""

    def __init__(self, file: DiskFile, first: Segment) -> None:
        file.truncate(0)
        self.file = file
        self.index = SparseIndex(first.base_offset, start=0, interval_bytes=first.index.interval_bytes)
        self.offset: int = first.base_offset
        self._base_offset = first.base_offset
        self.size_bytes = 0
        self._written = 0
        self._waiting: list[Bytes] = []
        self._time = NO_TIME
        self._time_offset: int = first.base_offset

    def put(self, header: BatchHeader, data: Bytes) -> None:
        assert header.base_offset == self.offset, "the offsets continue without a gap"
        if self.size_bytes >= self.index.due:
            self.index.add(header.base_offset, position=self.size_bytes, time_before=self._time)
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
        return SegmentState(
            base_offset=self._base_offset,
            next_offset=Offset(self.offset),
            size_bytes=self.size_bytes,
            max_timestamp=self._time,
            max_timestamp_offset=Offset(self._time_offset),
            created_ms=created_ms,
        )

    def _write(self) -> None:
        if self._waiting:
            self.file.write(self._waiting, self._written)
        self._waiting, self._written = [], self.size_bytes
