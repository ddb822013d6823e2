"""Stores consecutive batches of a log in one file, `<offset of the first batch, 20 digits>.log`.

The file contains only record batches, in wire format, without gaps. After a crash, everything before `flushed` is
intact. After it there may be any mixture of batches, partial batches, zeros and old bytes. Recovery keeps the whole
batches that continue the log.

Invariants: flushed.position <= end.position <= bytes in the file. Bytes after `end` are garbage of a failed write and
are never read. The offset of each mark is the one after the batches before its position.
"""

import errno
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.header import LENGTH_END, BatchHeader, CorruptBatch
from millstream.seams.disk import Buffer, DiskFile
from millstream.storage.log import sparse_index as index_files
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.log.segment_scan import walk
from millstream.storage.log.sparse_index import BatchPosition, IndexEntries, SparseIndex, no_entries

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
NO_TIME = -1
_INDEX_WORTH_SAVING = 8
"""A segment with fewer index entries is scanned faster than its index file is opened."""


class SegmentState(NamedTuple):
    """The state of a segment as a checkpoint stores it."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: Offset
    created_ms: int

    @classmethod
    def empty(cls, base_offset: Offset, *, created_ms: int) -> "SegmentState":
        """Return the state of a segment without batches."""
        return cls(
            base_offset=base_offset,
            next_offset=base_offset,
            size_bytes=0,
            max_timestamp=NO_TIME,
            max_timestamp_offset=base_offset,
            created_ms=created_ms,
        )


class FlushMark(Struct, frozen=True):
    """A position between two batches of a segment, with the largest timestamp before it."""

    offset: Offset
    """The offset of the next batch."""
    position: int
    max_timestamp: int
    max_timestamp_offset: Offset

    def state(self, base_offset: Offset, created_ms: int) -> SegmentState:
        """Return the state of a segment that ends here."""
        return SegmentState(
            base_offset=base_offset,
            next_offset=self.offset,
            size_bytes=self.position,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            created_ms=created_ms,
        )


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{SEGMENT_SUFFIX}"


class Segment:
    """The batches from `base_offset` to `next_offset`."""

    __slots__ = (
        "_files",
        "_flushing",
        "base_offset",
        "created_ms",
        "end",
        "failed",
        "file",
        "flushed",
        "index",
        "is_closed",
        "is_in_doubt",
        "is_named",
        "is_retired",
        "path",
        "pinned",
        "used",
    )

    def __init__(
        self, directory: str, state: SegmentState, files: OpenFiles, interval_bytes: int, *, is_closed: bool = False
    ) -> None:
        self.base_offset = state.base_offset
        self.path = f"{directory}/{segment_name(state.base_offset)}"
        self.end = FlushMark(state.next_offset, state.size_bytes, state.max_timestamp, state.max_timestamp_offset)
        """The end as one object, so that other threads never see its offset and position out of step."""
        self.flushed = self.end
        self.created_ms = state.created_ms
        self.index = SparseIndex(state.base_offset, start=state.size_bytes, interval_bytes=interval_bytes)
        self.is_closed = is_closed
        """True if no more batches are appended."""
        self.is_named = True
        """True once the file's name in its directory has been flushed."""
        self.is_in_doubt = False
        """True if the file was closed with unflushed bytes, so that a failed write-back may be unnoticed."""
        self.failed: OSError | None = None
        """The error of the first failed flush."""
        self.is_retired = False
        """True if another segment has replaced it, perhaps under the same name. Readers may still use it."""
        self.file: DiskFile | None = None
        self.pinned: DiskFile | None = None
        """A file that stays open because its name belongs to another file now, or to none."""
        self.used = False
        self._files = files
        self._flushing = threading.Lock()
        """Serialises flushes: the kernel reports an error to only one of several callers, and all must see it."""

    @classmethod
    def fresh(
        cls, directory: str, base_offset: Offset, files: OpenFiles, *, interval_bytes: int, now_ms: int
    ) -> "Segment":
        """Create a new segment and its file. Raise OSError."""
        state = SegmentState.empty(base_offset, created_ms=now_ms)
        segment = cls(directory, state, files, interval_bytes)
        segment.is_named = False
        file = files.open(segment, create=True)
        if file.size():
            file.truncate(0)
        return segment

    @property
    def next_offset(self) -> Offset:
        return self.end.offset

    @property
    def size_bytes(self) -> int:
        return self.end.position

    @property
    def max_timestamp(self) -> int:
        return self.end.max_timestamp

    @property
    def max_timestamp_offset(self) -> Offset:
        return self.end.max_timestamp_offset

    def state(self) -> SegmentState:
        """The flushed state, for a checkpoint."""
        return self.flushed.state(self.base_offset, self.created_ms)

    def open(self) -> DiskFile:
        file = self.file
        if file is None:
            return self.pinned or self._files.open(self)
        self.used = True
        return file

    def retire(self) -> None:
        """Keep the file open, because its name is about to be replaced or removed. Raise OSError."""
        with self._flushing:
            self.pinned = self.open()
            self.is_retired = True

    def recall(self) -> None:
        """Undo `retire`, because the segment was not replaced."""
        self.pinned = None
        self.is_retired = False

    # Transitions.

    def rolled(self) -> None:
        """Note that the next segment has begun, so no more batches are appended."""
        self.is_closed = True

    def written_elsewhere(self, file: DiskFile, index: SparseIndex) -> None:
        """Take over the file and index of a rewritten segment, whose file still has another name."""
        assert self.is_closed, "only closed segments are rewritten"
        self.pinned, self.index = file, index

    def moved_into_place(self) -> None:
        """Note that the file of a rewritten segment has the segment's own name now."""
        assert not self.is_retired, "a retired segment keeps its file open"
        self.pinned = None

    def append(self, batches: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write whole batches at the end. After OSError the end is unchanged."""
        end = self.end
        offset: int = end.offset
        position, max_timestamp = end.position, end.max_timestamp
        max_timestamp_offset: int = end.max_timestamp_offset
        file = self.file
        if file is None:
            file = self._files.open(self)
        self.used = True
        file.write(batches, position)
        if self.file is None:
            self.is_in_doubt = True  # The file was closed by another thread during the write.
        index = self.index
        for header in headers:
            if position >= index.due:
                index.add(Offset(offset), position=position, time_before=max_timestamp)
            position += header.batch_length + LENGTH_END
            offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, offset - 1
        assert position == end.position + len(batches), "the headers are those of the batches"
        self.end = FlushMark(Offset(offset), position, max_timestamp, Offset(max_timestamp_offset))

    def flush(self) -> None:
        """Flush the file (blocking). After one failure every further flush fails, because a retry proves nothing.

        If the file was closed since its last flush, a failed write-back of the kernel may have gone unnoticed. The
        kernel may then hold unwritten pages as clean, or have dropped them. So this method verifies the unflushed
        batches and writes them once more. The second write makes their pages dirty again, and this flush covers them.
        """
        with self._flushing:
            if self.failed is not None:
                raise OSError(self.failed.errno, f"an earlier flush failed: {self.failed.strerror}", self.path)
            try:
                file = self.open()
                in_doubt, self.is_in_doubt = self.is_in_doubt, False
                if in_doubt and self._files.is_careful:
                    self._write_again(file)
                file.flush()
            except OSError as error:
                self.failed = error
                raise

    def _write_again(self, file: DiskFile) -> None:
        """Write the unflushed batches again. Raise OSError if the file no longer has the batches that were written."""
        end = self.end.position
        first = self.flushed.position
        try:
            for position, header in walk(file, position=first, end=end, next_offset=self.flushed.offset, verify=True):
                file.write(file.read(header.size_bytes, position=position), position)
        except CorruptBatch as error:
            raise OSError(errno.EIO, f"unflushed bytes were lost: {error.detail}", self.path) from error

    def flush_only(self, state: SegmentState) -> None:
        """Set the flushed end to a checkpointed state, for a segment that was created from its whole file."""
        self.flushed = FlushMark(state.next_offset, state.size_bytes, state.max_timestamp, state.max_timestamp_offset)

    def flush_to(self, mark: FlushMark) -> None:
        """Record that everything before `mark` has been flushed."""
        if mark.position > self.flushed.position:
            assert mark.position <= self.end.position, "the flushed end is at most the written end"
            self.flushed = mark

    # The interface of an open file's holder.

    def let_go(self) -> None:
        self.file = None
        if self.flushed.position < self.end.position:
            self.is_in_doubt = True
        if self.is_closed and not self.is_retired and self.index.saved_bytes == self.size_bytes:
            self.index = SparseIndex(self.base_offset, start=self.size_bytes, interval_bytes=self.index.interval_bytes)
            self.index.saved_bytes = self.size_bytes

    def forget(self) -> None:
        """Drop the file in any state, because it has been removed or replaced."""
        self._files.forget(self)

    # Scanning and the index. All of these block.

    def headers(self, begin: BatchPosition, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch from `begin` to position `end`.

        Raise PARTITION_QUARANTINED at the first bytes that are not a batch.
        """
        try:
            yield from walk(self.open(), position=begin.position, end=end, next_offset=begin.offset)
        except CorruptBatch as error:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{self.path}: {error.detail}") from error

    def load_index(self) -> None:
        """Load the part of the index that is not in memory from its file, or rebuild it from the segment."""
        index = self.index
        if index.is_loaded():
            return
        found = None if self.is_retired else self._read_index_file(index.start)
        if found is not None:
            try:
                index.install(self._index_from(found, index.start))
                return
            except MillstreamError:
                pass  # The index file does not match the segment, so the index is rebuilt from the batches.
        index.install(self._index_from(no_entries(), index.start))

    def rebuild_index(self) -> None:
        """Rebuild the index from the batches, because it contradicted the segment."""
        end = self.end.position
        index = SparseIndex(self.base_offset, start=end, interval_bytes=self.index.interval_bytes)
        index.install(self._index_from(no_entries(), end))
        self.index = index

    def _index_from(self, entries: IndexEntries, end: int) -> IndexEntries:
        """Extend `entries`, which may be empty, with the batches from the last entry up to position `end`."""
        begin, time, due = BatchPosition(self.base_offset, 0), NO_TIME, 0
        if entries.positions:
            begin, time = BatchPosition(Offset(entries.offsets[-1]), entries.positions[-1]), entries.times[-1]
            due = begin.position + self.index.interval_bytes
        for position, header in self.headers(begin, end):
            if position >= due:
                entries.times.append(time)
                entries.offsets.append(header.base_offset)
                entries.positions.append(position)
                due = position + self.index.interval_bytes
            time = max(time, header.max_timestamp)
        return entries

    def _read_index_file(self, until: int) -> IndexEntries | None:
        """The entries below `until` from the index file, or None if the file is missing or invalid."""
        try:
            file = self._files.disk.open(self.index_path())
            found = index_files.decode(file.read(file.size(), position=0), self.base_offset)
            file.close()
        except OSError:
            return None
        if found is None or found[1] > until:
            return None
        if found[1] == until:
            self.index.saved_bytes = until
        return index_files.cut(found[0], until)

    def save_index(self) -> None:
        """Write the index file if the segment is large enough. A failure is ignored: the index can be rebuilt."""
        index, mark = self.index, self.end
        if index.entry_count() < _INDEX_WORTH_SAVING or index.saved_bytes == mark.position:
            return
        try:
            self.load_index()
            data = index.encode(mark.position)
            if data is None:
                return
            with self._flushing:
                if self.is_retired:
                    return
                file = self._files.disk.open(self.index_path(), create=True)
                file.truncate(0)
                file.write(data, 0)
                file.close()
        except (OSError, MillstreamError):
            return
        index.saved_bytes = mark.position

    def index_path(self) -> str:
        return self.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
