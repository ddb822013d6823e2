"""What an archive holds of a topic: pieces, each a range of offsets of one partition and the files with its messages.

Invariants of an archive: of each partition, the pieces lie one behind the other, and no two share an offset. A stretch
that was gone from the log before it could be archived is a piece too, that says so; whatever else is missing between
two pieces is damage. Compaction may have left a piece with fewer messages than offsets, or with none and no file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

Interval = tuple[int, int]
"""Offsets from the first on, before the second."""


class StoredFile(NamedTuple):
    """A Parquet file: messages of one piece and one day, in the order of their offsets, `first` and `last` included.

    The checksum is CRC-32C, over the file's bytes.
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
    """In the order of their offsets."""
    found: dict[int, list[ArchivePiece]] = {}
    for piece in sorted(pieces, key=attrgetter("partition", "start")):
        found.setdefault(piece.partition, []).append(piece)
    return found


def added(ends: Mapping[int, int], pieces: Sequence[ArchivePiece]) -> list[ArchivePiece]:
    """The pieces of a batch that go behind what is archived up to `ends`, with those that are missing in between.

    What is archived already, because the batch is repeated, is left out. ValueError where a piece covers the end of
    what is archived: nobody makes such a batch, unless two write the same archive.
    """
    found: list[ArchivePiece] = []
    for partition, line in by_partition(pieces).items():
        reached = ends.get(partition)
        for piece in line:
            if reached is not None and piece.end <= reached:
                continue
            if reached is not None and piece.start < reached:
                text = f"partition {partition} ends at {reached}, and {piece.start} to {piece.end - 1} were to be added"
                raise ValueError(text)
            if reached is not None and piece.start > reached:
                found.append(ArchivePiece(partition, reached, piece.start, is_lost=True))
            found.append(piece)
            reached = piece.end
    return found


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same offsets in as few intervals as can be, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    return found


def misplaced(pieces: Iterable[ArchivePiece]) -> list[str]:
    """Where the pieces of an archive are not one behind the other, in words."""
    found: list[str] = []
    for partition, line in by_partition(pieces).items():
        for before, after in pairwise(line):
            where = f"partition {partition}: the index has"
            if after.start > before.end:
                found.append(f"{where} nothing for offsets {before.end} to {after.start - 1}")
            elif after.start < before.end:
                found.append(f"{where} offsets {after.start} to {min(before.end, after.end) - 1} twice")
    return found
