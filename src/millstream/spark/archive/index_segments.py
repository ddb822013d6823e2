"""Encodes the index of an archive: each batch adds a small segment, and segments are merged into larger ones.

A segment is a Parquet file, `<first>-<last>.parquet`, with the pieces that the commits of these numbers added. When the
last `FANOUT` segments have the same length, they are merged into one. So a commit is rewritten only a logarithmic
number of times, and a reader opens few files.

A merged segment is created before its parts are deleted. If both are seen, the longer one counts. Rows are in order of
partition and offset. Work that grows with the archive (merging, and searching for a time) is done on columns, without
an object per row.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.spark.archive.archive_pieces import ArchivePiece, Interval, StoredFile, by_partition, merged

FANOUT = 16
_DIGITS = 12
_SUFFIX = ".parquet"
MERGED_ROWS = 1_000_000
"""Maximum number of rows of a merged segment. Merging takes memory, and time within a commit."""
_GROUP_ROWS = 20_000
"""Rows per row group. Since pieces are in order, a reader skips row groups that it does not need."""

_FILE = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in StoredFile._fields[1:]),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("is_lost", pa.bool_(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("files", pa.list_(pa.field("element", _FILE, nullable=False)), nullable=False),
    ]
)


class CommitSpan(NamedTuple):
    """The commits in a segment, `last` included."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.first:0{_DIGITS}}-{self.last:0{_DIGITS}}{_SUFFIX}"

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def holds(self, other: "CommitSpan") -> bool:
        """True if this span includes all commits of the other."""
        return self.first <= other.first and other.last <= self.last


def span_of(name: str) -> CommitSpan | None:
    """Returns the commits that a segment's file name gives, or None for other names."""
    first, _, last = name.removesuffix(_SUFFIX).partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    span = CommitSpan(int(first), int(last))
    return span if span.name == name else None


def living(spans: Iterable[CommitSpan]) -> list[CommitSpan]:
    """Returns the spans in order, without those that are part of a longer one."""
    found: list[CommitSpan] = []
    for span in sorted(spans, key=lambda each: (each.first, -each.last)):
        if not found or not found[-1].holds(span):
            found.append(span)
    return found


def missing(spans: Iterable[CommitSpan]) -> CommitSpan | None:
    """Returns the first gap between the spans, as the commits in it, or None."""
    reached = 0
    for span in spans:
        if span.first > reached:
            return CommitSpan(reached, span.first - 1)
        reached = span.last + 1
    return None


def due(spans: Sequence[CommitSpan]) -> Sequence[CommitSpan]:
    """Returns the last segments if they must be merged into one, else nothing."""
    tail = spans[-FANOUT:]
    return tail if len(tail) == FANOUT and len({each.length for each in tail}) == 1 else ()


def encode(pieces: Iterable[ArchivePiece]) -> bytes:
    """Returns a segment's file."""
    rows = [
        {
            **piece._asdict(),
            "rows": piece.rows,
            "size_bytes": piece.size_bytes,
            "files": [each._asdict() for each in piece.files],
        }
        for line in by_partition(pieces).values()
        for piece in line
    ]
    return _encoded(pa.Table.from_pylist(rows, schema=SCHEMA))


def merge(files: Iterable[pa.NativeFile]) -> bytes | None:
    """Merges several segment files into one. Returns None if the result would be too large."""
    parts = [_opened(file) for file in files]
    if sum(part.metadata.num_rows for part in parts) > MERGED_ROWS:
        return None
    table = pa.concat_tables([part.read() for part in parts])
    return _encoded(table.sort_by([("partition", "ascending"), ("start", "ascending")]))


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_GROUP_ROWS, write_page_checksum=True)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def decode(
    file: pa.NativeFile, partition: int | None = None, *, start: int = 0, end: int = 2**63 - 1
) -> list[ArchivePiece]:
    """Returns the pieces of a segment, or only those with some of these offsets of a partition."""
    return _pieces(_table(file, partition, start=start, end=end))


def first_at(file: pa.NativeFile, partition: int, *, time_ms: int, before: int) -> ArchivePiece | None:
    """Returns the first piece of a partition that begins below `before` and has a message at or after a time."""
    table = _table(file, partition, start=0, end=before)
    files = table.column("files").combine_chunks()
    is_late = pc.greater_equal(pc.struct_field(files.flatten(), "latest_ms"), time_ms)
    rows = pc.list_parent_indices(files).filter(is_late)
    return _pieces(table.slice(rows[0].as_py(), 1))[0] if len(rows) else None


def _table(file: pa.NativeFile, partition: int | None, *, start: int, end: int) -> pa.Table:
    found = _opened(file)
    is_wanted = _is_wanted(found.read(["partition", "start", "end"]), partition, start=start, end=end)
    groups, reached = [], 0
    for number in range(found.num_row_groups):
        rows = found.metadata.row_group(number).num_rows
        if pc.any(is_wanted.slice(reached, rows)).as_py():
            groups.append(number)
        reached += rows
    table = found.read_row_groups(groups, [*ArchivePiece._fields])
    return table.filter(_is_wanted(table, partition, start=start, end=end))


def _is_wanted(table: pa.Table, partition: int | None, *, start: int, end: int) -> pa.ChunkedArray:
    found = pc.and_(pc.less(table.column("start"), end), pc.greater(table.column("end"), start))
    return found if partition is None else pc.and_(found, pc.equal(table.column("partition"), partition))


def _opened(file: pa.NativeFile) -> pq.ParquetFile:
    """Opens a segment. Raises ArrowException, OSError or ValueError for a file that is not a segment.

    On a damaged file, PyArrow's datasets may block forever, and reading a column's statistics may crash the process.
    This module uses neither.
    """
    found = pq.ParquetFile(file, page_checksum_verification=True)
    if not found.schema_arrow.equals(SCHEMA):
        raise pa.ArrowInvalid("the file does not have the columns of a segment")
    return found


def _pieces(table: pa.Table) -> list[ArchivePiece]:
    return [
        ArchivePiece(
            row["partition"],
            row["start"],
            row["end"],
            row["is_lost"],
            tuple(StoredFile(**each) for each in row["files"]),
        )
        for row in table.to_pylist()
    ]


class ArchivedRange(NamedTuple):
    """The archived and lost offsets of a partition, and their size."""

    archived: Sequence[Interval] = ()
    lost: Sequence[Interval] = ()
    rows: int = 0
    size_bytes: int = 0

    @property
    def end(self) -> int:
        return max(end for _, end in (*self.archived, *self.lost))

    def together(self, other: "ArchivedRange") -> "ArchivedRange":
        """Returns the union of two ranges."""
        return ArchivedRange(
            merged((*self.archived, *other.archived)),
            merged((*self.lost, *other.lost)),
            self.rows + other.rows,
            self.size_bytes + other.size_bytes,
        )


def extents(file: pa.NativeFile) -> dict[int, ArchivedRange]:
    """Returns the range of each partition in a segment, without reading the column of files."""
    names = [name for name in SCHEMA.names if name != "files"]
    table = _opened(file).read(names)
    intervals: dict[int, tuple[list[Interval], list[Interval]]] = {}
    sums: dict[int, tuple[int, int]] = {}
    for partition, start, end, is_lost, rows, size_bytes in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        intervals.setdefault(partition, ([], []))[is_lost].append((start, end))
        before = sums.get(partition, (0, 0))
        sums[partition] = (before[0] + rows, before[1] + size_bytes)
    return {
        number: ArchivedRange(merged(found), merged(lost), *sums[number]) for number, (found, lost) in intervals.items()
    }
