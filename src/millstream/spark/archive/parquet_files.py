"""The messages of a range as Parquet files, one for each day, and back: what a task does.

The day is that of the message's time, in UTC; times that no calendar has go to the first or the last day it has. A file
has the columns of the SDK's record batches, without those that its directories name; nothing is changed in them: no
value is not an empty value, and times are in milliseconds.
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
"""A file that has grown so large is followed by another."""
GROUP_BYTES = 32 * 1024 * 1024
"""About what is held in memory of each file that is being written: a row group."""
OPEN_MAX = 8
"""Files that a task writes at the same time. Where times jump among more days, there are more and smaller files."""

SCHEMA = pa.schema([RECORDS.field(name) for name in ("offset", "timestamp", "key", "value", "headers")])

_PLACES = [MESSAGES.field("topic"), MESSAGES.field("partition")]
"""What directories say."""

_DAY_MS = 24 * 60 * 60 * 1000
_FIRST_MS = -719162 * _DAY_MS
"""The calendar's first day, and its last moment."""
_LAST_MS = (date.max.toordinal() - 719162) * _DAY_MS - 1

_WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["key"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_page_checksum": True,
}


class PieceWriter:
    """Takes the messages of a range in their order; nothing of it counts before the piece is committed."""

    def __init__(self, shelf: TopicArchive, partition: int) -> None:
        self._shelf = shelf
        self._partition = partition
        self._open: OrderedDict[int, _Growing] = OrderedDict()
        """By day, the one that was written to last at the end."""
        self._files: list[StoredFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """OSError when there is no room, or something else that stands against it."""
        batch = batch.select(SCHEMA.names)
        for day, rows in _by_day(batch):
            growing = self._open.pop(day, None)
            if growing is None:
                if len(self._open) == OPEN_MAX:
                    self._finish(next(iter(self._open)))
                growing = _Growing(self._shelf, self._partition, day, rows.column("offset")[0].as_py())
            self._open[day] = growing
            growing.write(rows)
            if growing.size_bytes >= ROLL_BYTES:
                self._finish(day)

    def _finish(self, day: int) -> None:
        self._files.append(self._open[day].finish())
        del self._open[day]

    def finish(self, start: int, end: int) -> ArchivePiece:
        """The piece of these offsets; its files are on the disk."""
        for day in list(self._open):
            self._finish(day)
        return ArchivePiece(self._partition, start, end, files=tuple(sorted(self._files, key=lambda each: each.first)))

    def discard(self) -> None:
        """Delete what was written, also where nothing more can be."""
        while self._open:
            self._open.popitem()[1].abandon()
        for file in self._files:
            self._shelf.store.delete(self._shelf.staged_place(file))


class _Growing:
    """A file that is being written."""

    def __init__(self, shelf: TopicArchive, partition: int, day: int, first: int) -> None:
        self._shelf = shelf
        directory = f"date={date.fromordinal(day).isoformat()}/partition={partition}"
        self._empty = StoredFile(f"{directory}/{first:020}-{uuid4().hex[:12]}.parquet", first, first, 0, 0, 0, 0, 0)
        self._path = shelf.staged_place(self._empty)
        self._sink = _Summing(shelf.store.open_output(self._path), shelf.store.full(self._path))
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._last = first
        self._times_ms = (2**63 - 1, -(2**63))

    @property
    def size_bytes(self) -> int:
        """Without what is held in memory."""
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
        self._shelf.store.delete(self._path)

    def finish(self) -> StoredFile:
        if self._held:
            self._flush()
        assert self._writer is not None, "a file is begun for messages"
        self._writer.close()
        self._sink.close()
        self._shelf.store.keep(self._path)
        return self._empty._replace(
            last=self._last,
            rows=self._rows,
            size_bytes=self._sink.size_bytes,
            checksum=self._sink.checksum,
            earliest_ms=self._times_ms[0],
            latest_ms=self._times_ms[1],
        )


class _Summing:
    """A file for PyArrow to write to that keeps count."""

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
        """The file system does that when it is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with naming(self._path):
                self._file.close()


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Its rows by day, as the calendar counts them; those of a day stay in their order."""
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


# Back again.


def read_piece(
    shelf: TopicArchive, piece: ArchivePiece, start: int, end: int, names: Sequence[str] = SCHEMA.names
) -> Iterator[pa.RecordBatch]:
    """The messages of a piece with these offsets, in their order, as the SDK gives them; only columns of these names.

    CORRUPT_MESSAGE where a file is gone or damaged.
    """
    wanted = [each for each in piece.files if each.first < end and each.last >= start]
    for group in _apart(wanted):
        batches = (batch for file in group for batch in _read(shelf, file, start, end, names))
        for batch in batches if len(group) == 1 else _sorted(batches):
            yield _placed(shelf.topic, piece.partition, batch)


def _apart(files: Sequence[StoredFile]) -> list[list[StoredFile]]:
    """Files in order, together with those that have offsets in between theirs."""
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
    shelf: TopicArchive, stored: StoredFile, start: int, end: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    columns = [name for name in SCHEMA.names if name in names or name == "offset"]
    try:
        with shelf.open(stored) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if not file.schema_arrow.equals(SCHEMA):
                raise ValueError("its columns are not those that were written")
            is_whole = start <= stored.first and stored.last < end
            groups = list(range(file.num_row_groups)) if is_whole else _groups(file, stored, start, end)
            found = 0
            for batch in file.iter_batches(row_groups=groups, columns=columns):
                rows = _between(batch, start, end)
                found += rows.num_rows
                if rows.num_rows:
                    yield rows
            if is_whole and found != stored.rows:
                raise ValueError(f"it has {found} messages instead of {stored.rows}")
    except (pa.ArrowException, OSError, ValueError) as error:  # Names that are no UTF-8 are among the last.
        raise damaged(shelf, stored, error) from None


def damaged(shelf: TopicArchive, stored: StoredFile, why: object) -> MillstreamError:
    text = f"{shelf.store.full(shelf.place(stored))} of the archive cannot be read: {why}"
    return MillstreamError(ErrorCode.CORRUPT_MESSAGE, text)


def _groups(file: pq.ParquetFile, stored: StoredFile, start: int, end: int) -> list[int]:
    """Those with messages of a range. The offsets themselves are asked, which are small and have checksums: statistics
    have none, and damaged ones end the process."""
    offsets = [file.read_row_group(each, columns=["offset"]).column(0) for each in range(file.num_row_groups)]
    found = sum(map(len, offsets))
    if found != stored.rows:
        raise ValueError(f"it has {found} messages instead of {stored.rows}")
    return [number for number, each in enumerate(offsets) if len(each) and _overlap(each, start, end)]


def _overlap(offsets: pa.ChunkedArray, start: int, end: int) -> bool:
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return bool(first < end and last >= start)


def _between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = memoryview(batch.column("offset").buffers()[1]).cast("B").cast("q")
    shift = batch.column("offset").offset
    first = bisect_left(offsets, start, shift, shift + batch.num_rows)
    last = bisect_left(offsets, end, first, shift + batch.num_rows)
    return batch.slice(first - shift, last - first)


def _placed(topic: str, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """With the columns that its directories name."""
    topics, partitions = _places(topic, partition, 1 << (batch.num_rows - 1).bit_length())
    return pa.RecordBatch.from_arrays(
        [topics.slice(0, batch.num_rows), partitions.slice(0, batch.num_rows), *batch.columns],
        schema=pa.schema([*_PLACES, *(SCHEMA.field(name) for name in batch.schema.names)]),
    )


@lru_cache(maxsize=16)
def _places(topic: str, partition: int, rows: int) -> tuple[pa.Array, pa.Array]:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(zeros, pa.array([topic])), pa.repeat(pa.scalar(partition, pa.int32()), rows)
