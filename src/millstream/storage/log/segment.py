"""One segment: a run of a log's batches in one file, `<offset of the first batch, 20 digits>.log`.

The file is nothing but record batches, each as it came over the wire, one after another without gaps. What a crash
leaves: everything before `flushed` is there; behind it any mixture of batches, parts of batches, zeros and old bytes,
of which recovery keeps the whole batches that continue the log.

Invariants: flushed.position <= end.position <= bytes in the file (what lies behind `end` is rubbish of a failed write
and is never read); the offset of either mark is the one that follows the batches before its position.
"""

import errno
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.header import BatchHeader, CorruptBatch
from millstream.seams.disk import Buffer, DiskFile
from millstream.storage.log import sparse_index as index_files
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.log.segment_scan import walk
from millstream.storage.log.sparse_index import BatchPosition, IndexEntries, SparseIndex, no_entries

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
NO_TIME = -1
_INDEX_WORTH_SAVING = 8
"""A segment with fewer entries is walked faster than its index file is opened."""


class FlushMark(NamedTuple):
    """A place in a segment between two batches, and what is known of all that lies before it."""

    offset: int
    """The offset that follows."""
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class SegmentState(NamedTuple):
    """What a checkpoint knows about a segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    created_ms: int


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{SEGMENT_SUFFIX}"


class Segment:
    """The run of batches from `base_offset` to `next_offset`."""

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
        "is_careful",
        "is_closed",
        "is_in_doubt",
        "is_named",
        "is_retired",
        "path",
        "pinned",
        "used",
    )

    def __init__(self, directory: str, state: SegmentState, files: OpenFiles, interval_bytes: int) -> None:
        self.base_offset = state.base_offset
        self.path = f"{directory}/{segment_name(state.base_offset)}"
        self.end = FlushMark(state.next_offset, state.size_bytes, state.max_timestamp, state.max_timestamp_offset)
        """Offset and position of the end in one, so that another thread never sees one without the other."""
        self.flushed = self.end
        self.created_ms = state.created_ms
        self.index = SparseIndex(state.base_offset, state.size_bytes, interval_bytes)
        self.is_closed = False
        self.is_named = True
        """Whether the file's name in its directory has been flushed."""
        self.is_careful = True
        """Whether a flush must not overlook that the file was let go too early."""
        self.is_in_doubt = False
        """Whether the file was let go with unflushed bytes, so that a failed write-back may have gone unheard."""
        self.failed: OSError | None = None
        """How the first flush failed that did."""
        self.is_retired = False
        """Whether another segment has taken its place, and perhaps its name; those who still read go on with it."""
        self.file: DiskFile | None = None
        self.pinned: DiskFile | None = None
        """A file that is its own whatever its name leads to, for as long as somebody needs it."""
        self.used = False
        self._files = files
        self._flushing = threading.Lock()
        """One flush at a time: the kernel reports an error to one of several callers, and all must hear of it."""

    @classmethod
    def fresh(cls, directory: str, base_offset: int, files: OpenFiles, interval_bytes: int, now_ms: int) -> "Segment":
        """A new segment, whose file is made; raises OSError."""
        state = SegmentState(base_offset, base_offset, 0, NO_TIME, base_offset, now_ms)
        segment = cls(directory, state, files, interval_bytes)
        segment.is_named = False
        file = files.open(segment, create=True)
        if file.size():
            file.truncate(0)
        return segment

    @property
    def next_offset(self) -> int:
        return self.end.offset

    @property
    def size_bytes(self) -> int:
        return self.end.position

    @property
    def max_timestamp(self) -> int:
        return self.end.max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        return self.end.max_timestamp_offset

    def state(self) -> SegmentState:
        """What a checkpoint should know: only what has been flushed."""
        return SegmentState(self.base_offset, *self.flushed, self.created_ms)

    def open(self) -> DiskFile:
        file = self.file
        if file is None:
            return self.pinned or self._files.open(self)
        self.used = True
        return file

    def retire(self) -> None:
        """Keep the file, since its name is about to be another's or nobody's; raises OSError."""
        with self._flushing:
            self.pinned = self.open()
            self.is_retired = True

    def recall(self) -> None:
        """It was not replaced after all."""
        self.pinned = None
        self.is_retired = False

    def append(self, batches: Buffer, headers: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write whole batches at the end; after OSError the end is where it was."""
        offset, position, max_timestamp, max_timestamp_offset = self.end
        file = self.file
        if file is None:
            file = self._files.open(self)
        self.used = True
        file.write(batches, position)
        if self.file is None:
            self.is_in_doubt = True  # Let go while it was being written to.
        index = self.index
        for at, header in headers:
            if position + at >= index.due:
                index.add(offset, position + at, max_timestamp)
            offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, offset - 1
        self.end = FlushMark(offset, position + len(batches), max_timestamp, max_timestamp_offset)

    def flush(self) -> None:
        """Flush the file (blocking); once this has failed it fails for ever, since a second try proves nothing.

        If the file was let go meanwhile, the kernel may have failed to write some pages, told nobody, and hold them as
        clean or have dropped them. So the unflushed batches are checked and written once more, which makes them dirty
        again, and this flush answers for them.
        """
        with self._flushing:
            if self.failed is not None:
                raise OSError(self.failed.errno, f"an earlier flush failed: {self.failed.strerror}", self.path)
            try:
                file = self.open()
                in_doubt, self.is_in_doubt = self.is_in_doubt, False
                if in_doubt and self.is_careful:
                    self._write_again(file)
                file.flush()
            except OSError as error:
                self.failed = error
                raise

    def _write_again(self, file: DiskFile) -> None:
        """Write what has not been flushed over itself; raises OSError when it is not what was written."""
        end = self.end.position
        first = self.flushed.position
        try:
            for position, header in walk(file, first, end, self.flushed.offset, verify=True):
                file.write(file.read(header.size_bytes, position), position)
        except CorruptBatch as error:
            raise OSError(errno.EIO, f"unflushed bytes were lost: {error.detail}", self.path) from error

    def flush_only(self, state: SegmentState) -> None:
        """Only what a checkpoint knows of it is flushed; for one that was just made from what is there."""
        self.flushed = FlushMark(state.next_offset, state.size_bytes, state.max_timestamp, state.max_timestamp_offset)

    def flush_to(self, mark: FlushMark) -> None:
        """Note that everything before `mark` has been flushed."""
        if mark.position > self.flushed.position:
            assert mark.position <= self.end.position, "no more is flushed than was written"
            self.flushed = mark

    # As a holder of an open file.

    def let_go(self) -> None:
        self.file = None
        if self.flushed.position < self.end.position:
            self.is_in_doubt = True
        if self.is_closed and not self.is_retired and self.index.saved_bytes == self.size_bytes:
            self.index = SparseIndex(self.base_offset, self.size_bytes, self.index.interval_bytes)
            self.index.saved_bytes = self.size_bytes

    def forget(self) -> None:
        """The file is gone or replaced: let go of it whatever state it is in."""
        self._files.forget(self)

    # Walking and the index. All of these block.

    def headers(self, place: BatchPosition, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Each batch from `place` to position `end`; PARTITION_QUARANTINED when something there is no batch."""
        try:
            yield from walk(self.open(), place.position, end, place.offset)
        except CorruptBatch as error:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{self.path}: {error.detail}") from error

    def load_index(self) -> None:
        """Get the part of the index that is not in memory from its file, or else from the segment."""
        index = self.index
        if index.is_loaded():
            return
        found = None if self.is_retired else self._read_index_file(index.start)
        if found is not None:
            try:
                index.install(self._index_from(found, index.start))
                return
            except MillstreamError:
                pass  # The file does not fit the segment; the batches decide.
        index.install(self._index_from(no_entries(), index.start))

    def rebuild_index(self) -> None:
        """The index contradicted the segment: make it anew from the batches."""
        end = self.end.position
        index = SparseIndex(self.base_offset, end, self.index.interval_bytes)
        index.install(self._index_from(no_entries(), end))
        self.index = index

    def _index_from(self, entries: IndexEntries, end: int) -> IndexEntries:
        """Add to `entries`, which may be none, what the batches from the last of them up to `end` say."""
        place, time, due = BatchPosition(self.base_offset, 0), NO_TIME, 0
        if entries.positions:
            place, time = BatchPosition(entries.offsets[-1], entries.positions[-1]), entries.times[-1]
            due = place.position + self.index.interval_bytes
        for position, header in self.headers(place, end):
            if position >= due:
                entries.times.append(time)
                entries.offsets.append(header.base_offset)
                entries.positions.append(position)
                due = position + self.index.interval_bytes
            time = max(time, header.max_timestamp)
        return entries

    def _read_index_file(self, until: int) -> IndexEntries | None:
        """The entries below `until` that the file has, if it can be believed."""
        try:
            file = self._files.disk.open(self.index_path())
            found = index_files.decode(file.read(file.size(), 0), self.base_offset)
            file.close()
        except OSError:
            return None
        if found is None or found[1] > until:
            return None
        if found[1] == until:
            self.index.saved_bytes = until
        return index_files.cut(found[0], until)

    def save_index(self) -> None:
        """Write the index file, unless that is not worth it. It is only a help, so a failure changes nothing."""
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
