"""Defines the pieces of an archive. A piece is a range of offsets of one partition, with its files.

Invariants of an archive: the pieces of a partition are in offset order, without gaps or overlaps. A range that expired
from the log before it was archived is a piece as well, marked as lost; any other gap between pieces is damage. Because
of compaction, a piece may have fewer messages than offsets, or no messages and no file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

Interval = tuple[int, int]
"""The first offset, and the offset after the last one."""


class StoredFile(NamedTuple):
    """A Parquet file with messages of one piece and one day, in offset order. `first` and `last` are included.

    The checksum is the CRC-32C of the file's bytes.
    """

    name: str
    first: int
    last: int
    rows: int
    size_bytes: int
    checksum: int
    earliest_ms: int
    latest_ms: int


class ArchivePiece(NamedTuple):
    """A range of offsets of one partition in an archive, `end` excluded."""

    partition: int
    start: int
    end: int
    is_lost: bool = False
    files: tuple[StoredFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


def to_json(piece: ArchivePiece) -> str:
    return json.dumps(piece)


def from_json(text: str) -> ArchivePiece:
    partition, start, end, is_lost, files = json.loads(text)
    return ArchivePiece(partition, start, end, is_lost, tuple(StoredFile(*each) for each in files))


def by_partition(pieces: Iterable[ArchivePiece]) -> dict[int, list[ArchivePiece]]:
    """Groups the pieces by partition, each group in offset order."""
    found: dict[int, list[ArchivePiece]] = {}
    for piece in sorted(pieces, key=attrgetter("partition", "start")):
        found.setdefault(piece.partition, []).append(piece)
    return found


def added(ends: Mapping[int, int], pieces: Sequence[ArchivePiece]) -> list[ArchivePiece]:
    """Returns the pieces that a batch adds after the archived offsets (`ends`), and pieces marked as lost for the gaps.

    Pieces that are already archived, because the batch is repeated, are omitted. Raises ValueError if a piece overlaps
    the end of the archive: only a second writer of the same archive can cause that.
    """
    found: list[ArchivePiece] = []
    for partition, line in by_partition(pieces).items():
        reached = ends.get(partition)
        for piece in line:
            if reached is not None and piece.end <= reached:
                continue
            if reached is not None and piece.start < reached:
                text = f"partition {partition} ends at {reached}, but the batch adds {piece.start} to {piece.end - 1}"
                raise ValueError(text)
            if reached is not None and piece.start > reached:
                found.append(ArchivePiece(partition, reached, piece.start, is_lost=True))
            found.append(piece)
            reached = piece.end
    assert not misplaced(found), "pieces are contiguous"
    return found


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the same offsets as the smallest number of intervals, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    return found


def misplaced(pieces: Iterable[ArchivePiece]) -> list[str]:
    """Describes the gaps and overlaps between the pieces of an archive."""
    found: list[str] = []
    for partition, line in by_partition(pieces).items():
        for before, after in pairwise(line):
            where = f"partition {partition}: the index has"
            if after.start > before.end:
                found.append(f"{where} nothing for offsets {before.end} to {after.start - 1}")
            elif after.start < before.end:
                found.append(f"{where} offsets {after.start} to {min(before.end, after.end) - 1} twice")
    return found
