"""Writes the messages of a range as Parquet files, one per day, and reads them back.

The day is that of the message's timestamp, in UTC. Timestamps outside the calendar go to its first or last day. A file
has the columns of the SDK's record batches, except topic and partition, which its directories name. Values do not
change: null and empty stay distinct, and timestamps are in milliseconds.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.arrow import SCHEMA as RECORDS
from millstream.records.checksum import crc32c
from millstream.sdk.consuming.arrow import SCHEMA as MESSAGES
from millstream.spark.archive.archive_pieces import ArchivePiece, StoredFile
from millstream.spark.archive.store import naming
from millstream.spark.archive.topic_archive import TopicArchive

ROLL_BYTES = 128 * 1024 * 1024
"""File size at which the writer starts a new file."""
GROUP_BYTES = 32 * 1024 * 1024
"""Approximate size of a row group, which is held in memory for each open file."""
OPEN_MAX = 8
"""Maximum number of open files of a task. If timestamps jump among more days, files are smaller and more numerous."""

SCHEMA = pa.schema([RECORDS.field(name) for name in ("offset", "timestamp", "key", "value", "headers")])

_PLACES = [MESSAGES.field("topic"), MESSAGES.field("partition")]
"""Columns that the directory names give."""

_DAY_MS = 24 * 60 * 60 * 1000
_FIRST_MS = -719162 * _DAY_MS
"""First moment of the calendar."""
_LAST_MS = (date.max.toordinal() - 719162) * _DAY_MS - 1
"""Last moment of the calendar."""

_WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["key"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_page_checksum": True,
}


class PieceWriter:
    """Writes the messages of a range, in offset order.

    The files are not part of the archive until the piece is committed.
    """

    def __init__(self, topic_archive: TopicArchive, partition: int) -> None:
        self._topic_archive = topic_archive
        self._partition = partition
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        """Open files by day, the most recently written one last."""
        self._files: list[StoredFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds messages. Raises OSError if the disk is full or refuses the write."""
        batch = batch.select(SCHEMA.names)
        for day, rows in _by_day(batch):
            open_file = self._open.pop(day, None)
            if open_file is None:
                if len(self._open) == OPEN_MAX:
                    self._finish(next(iter(self._open)))
                open_file = _OpenFile(
                    self._topic_archive, self._partition, day=day, first=rows.column("offset")[0].as_py()
                )
            self._open[day] = open_file
            open_file.write(rows)
            if open_file.size_bytes >= ROLL_BYTES:
                self._finish(day)

    def _finish(self, day: int) -> None:
        self._files.append(self._open[day].finish())
        del self._open[day]

    def finish(self, start: int, *, end: int) -> ArchivePiece:
        """Closes the files and returns the piece of these offsets; its files are flushed to disk."""
        for day in list(self._open):
            self._finish(day)
        return ArchivePiece(self._partition, start, end, files=tuple(sorted(self._files, key=lambda each: each.first)))

    def discard(self) -> None:
        """Deletes the written files, also after a failed write."""
        while self._open:
            self._open.popitem()[1].abandon()
        for file in self._files:
            self._topic_archive.store.delete(self._topic_archive.staged_place(file))


class _OpenFile:
    """A file that is being written."""

    def __init__(self, topic_archive: TopicArchive, partition: int, *, day: int, first: int) -> None:
        self._topic_archive = topic_archive
        directory = f"date={date.fromordinal(day).isoformat()}/partition={partition}"
        self._empty = StoredFile(f"{directory}/{first:020}-{uuid4().hex[:12]}.parquet", first, first, 0, 0, 0, 0, 0)
        self._path = topic_archive.staged_place(self._empty)
        self._sink = _ChecksumFile(topic_archive.store.open_output(self._path), topic_archive.store.full(self._path))
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._last = first
        self._times_ms = (2**63 - 1, -(2**63))

    @property
    def size_bytes(self) -> int:
        """Number of bytes written, without those held in memory."""
        return self._sink.size_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
        self._times_ms = min(self._times_ms[0], times["min"]), max(self._times_ms[1], times["max"])
        self._last = rows.column("offset")[rows.num_rows - 1].as_py()
        self._rows += rows.num_rows
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._held, SCHEMA)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, SCHEMA, **_WRITING)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._held_bytes = [], 0

    def abandon(self) -> None:
        for each in (self._writer, self._sink):
            with suppress(OSError, pa.ArrowException):
                if each is not None:
                    each.close()
        self._topic_archive.store.delete(self._path)

    def finish(self) -> StoredFile:
        if self._held:
            self._flush()
        assert self._writer is not None, "a file has messages"
        self._writer.close()
        self._sink.close()
        self._topic_archive.store.keep(self._path)
        return self._empty._replace(
            last=self._last,
            rows=self._rows,
            size_bytes=self._sink.size_bytes,
            checksum=self._sink.checksum,
            earliest_ms=self._times_ms[0],
            latest_ms=self._times_ms[1],
        )


class _ChecksumFile:
    """A file object for PyArrow that counts bytes and computes their checksum."""

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file = file
        self._path = path
        self.size_bytes = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        with naming(self._path):
            self._file.write(data)
        self.checksum = crc32c(data, self.checksum)
        self.size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Does nothing: the file system flushes when the file is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with naming(self._path):
                self._file.close()


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows by day, numbered as in the calendar; rows of a day keep their order."""
    times = batch.column("timestamp").cast(pa.int64())
    ends = pc.min_max(times).as_py()
    first, last = (_day(ends[each]) for each in ("min", "max"))
    if first == last:
        yield first, batch
        return
    known = pc.max_element_wise(pc.min_element_wise(times, _LAST_MS), _FIRST_MS)
    days = pc.add(pc.divide(pc.subtract(known, _FIRST_MS), _DAY_MS), 1)
    for day in pc.unique(days).to_pylist():
        yield day, batch.filter(pc.equal(days, day))


def _day(time_ms: int) -> int:
    return (max(_FIRST_MS, min(_LAST_MS, time_ms)) - _FIRST_MS) // _DAY_MS + 1


# Reading.


def read_piece(
    topic_archive: TopicArchive, piece: ArchivePiece, start: int, *, end: int, names: Sequence[str] = SCHEMA.names
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a piece with these offsets, in order, in the SDK's format, with only the named columns.

    Raises CORRUPT_MESSAGE if a file is missing or damaged.
    """
    wanted = [each for each in piece.files if each.first < end and each.last >= start]
    for group in _apart(wanted):
        batches = (batch for file in group for batch in _read(topic_archive, file, start, end=end, names=names))
        for batch in batches if len(group) == 1 else _sorted(batches):
            yield _placed(topic_archive.topic, piece.partition, batch)


def _apart(files: Sequence[StoredFile]) -> list[list[StoredFile]]:
    """Groups files whose offset ranges overlap; the groups are in offset order."""
    groups: list[list[StoredFile]] = []
    last = -1
    for file in sorted(files, key=lambda each: each.first):
        if groups and file.first <= last:
            groups[-1].append(file)
        else:
            groups.append([file])
        last = max(last, file.last)
    return groups


def _sorted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        yield from pa.Table.from_batches(found).sort_by("offset").combine_chunks().to_batches()


def _read(
    topic_archive: TopicArchive, stored: StoredFile, start: int, *, end: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    columns = [name for name in SCHEMA.names if name in names or name == "offset"]
    try:
        with topic_archive.open(stored) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if not file.schema_arrow.equals(SCHEMA):
                raise ValueError("its columns are not those of an archive file")
            is_whole = start <= stored.first and stored.last < end
            groups = list(range(file.num_row_groups)) if is_whole else _groups(file, stored, start, end=end)
            found = 0
            for batch in file.iter_batches(row_groups=groups, columns=columns):
                rows = _between(batch, start, end=end)
                found += rows.num_rows
                if rows.num_rows:
                    yield rows
            if is_whole and found != stored.rows:
                raise ValueError(f"it has {found} messages instead of {stored.rows}")
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError includes invalid UTF-8 in names.
        raise damaged(topic_archive, stored, error) from None


def damaged(topic_archive: TopicArchive, stored: StoredFile, why: object) -> MillstreamError:
    text = f"archive file {topic_archive.store.full(topic_archive.place(stored))} cannot be read: {why}"
    return MillstreamError(ErrorCode.CORRUPT_MESSAGE, text)


def _groups(file: pq.ParquetFile, stored: StoredFile, start: int, *, end: int) -> list[int]:
    """Returns the row groups with messages of a range.

    It reads the offset columns, which are small and have checksums. Statistics have no checksums, and damaged ones
    crash the process.
    """
    offsets = [file.read_row_group(each, columns=["offset"]).column(0) for each in range(file.num_row_groups)]
    found = sum(map(len, offsets))
    if found != stored.rows:
        raise ValueError(f"it has {found} messages instead of {stored.rows}")
    return [number for number, each in enumerate(offsets) if len(each) and _overlap(each, start, end=end)]


def _overlap(offsets: pa.ChunkedArray, start: int, *, end: int) -> bool:
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return bool(first < end and last >= start)


def _between(batch: pa.RecordBatch, start: int, *, end: int) -> pa.RecordBatch:
    offsets = memoryview(batch.column("offset").buffers()[1]).cast("B").cast("q")
    shift = batch.column("offset").offset
    first = bisect_left(offsets, start, shift, shift + batch.num_rows)
    last = bisect_left(offsets, end, first, shift + batch.num_rows)
    return batch.slice(first - shift, last - first)


def _placed(topic: str, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the columns that the file's directories name."""
    topics, partitions = _places(topic, partition, rows=1 << (batch.num_rows - 1).bit_length())
    return pa.RecordBatch.from_arrays(
        [topics.slice(0, batch.num_rows), partitions.slice(0, batch.num_rows), *batch.columns],
        schema=pa.schema([*_PLACES, *(SCHEMA.field(name) for name in batch.schema.names)]),
    )


@lru_cache(maxsize=16)
def _places(topic: str, partition: int, *, rows: int) -> tuple[pa.Array, pa.Array]:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(zeros, pa.array([topic])), pa.repeat(pa.scalar(partition, pa.int32()), rows)
