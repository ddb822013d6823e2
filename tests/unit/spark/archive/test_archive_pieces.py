"""Tests the pieces of an archive: contiguous, and without overlaps."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.archive.archive_pieces import (
    ArchivePiece,
    StoredFile,
    added,
    by_partition,
    from_json,
    merged,
    misplaced,
    to_json,
)
from millstream.spark.reading.reachable_ranges import holes

FILE = StoredFile("date=2026-01-31/partition=0/00-ab.parquet", 3, 8, 5, 700, 2**32 - 1, -1, 2**62)

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda each: (each[0], sum(each))))


@st.composite
def lines(draw: st.DrawFn) -> list[ArchivePiece]:
    """Draws the pieces of a batch: per partition in order, with gaps for expired offsets."""
    found = []
    for partition in range(draw(st.integers(0, 3))):
        offset = draw(st.integers(0, 20))
        for length, hole in draw(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 0, 3])), max_size=5)):
            found.append(ArchivePiece(partition, offset + hole, offset + hole + length))
            offset += hole + length
    return draw(st.permutations(found))


def ends_of(pieces: list[ArchivePiece]) -> dict[int, int]:
    return {partition: line[-1].end for partition, line in by_partition(pieces).items()}


@given(lines())
def test_gaps_between_the_pieces_of_a_batch_are_recorded_as_lost_pieces(batch: list[ArchivePiece]) -> None:
    found = added({}, batch)
    assert misplaced(found) == []
    assert sorted(piece for piece in found if not piece.is_lost) == sorted(batch)
    for line in by_partition(found).values():
        assert all(before.end == after.start for before, after in pairwise(line))


@given(lines(), st.integers(0, 20))
def test_a_repeated_batch_adds_only_its_missing_pieces(batch: list[ArchivePiece], first: int) -> None:
    whole = added({}, batch)
    before = whole[: first % (len(whole) + 1)]
    again = added(ends_of(before), batch)
    assert sorted([*before, *again]) == sorted(whole)
    assert added(ends_of(whole), batch) == []


def test_a_piece_that_overlaps_the_end_of_the_archive_is_refused() -> None:
    with pytest.raises(ValueError, match="partition 0 ends at 5, but the batch adds 3 to 7"):
        added({0: 5}, [ArchivePiece(0, 3, 8)])


@given(intervals)
def test_merged_intervals_have_the_same_offsets_and_do_not_touch(given_intervals: list[tuple[int, int]]) -> None:
    found = merged(given_intervals)
    assert {offset for each in found for offset in range(*each)} == {
        offset for each in given_intervals for offset in range(*each)
    }
    assert all(before[1] < after[0] for before, after in pairwise(found))


@given(intervals)
def test_holes_are_the_gaps_between_intervals(given_intervals: list[tuple[int, int]]) -> None:
    found = {offset for each in holes(given_intervals) for offset in range(*each)}
    within = {offset for each in given_intervals for offset in range(*each)}
    if given_intervals:
        first, last = min(start for start, _ in given_intervals), max(end for _, end in given_intervals)
        assert found == set(range(first, last)) - within
    else:
        assert not found


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (ArchivePiece(0, 5, 9), []),
        (ArchivePiece(0, 7, 9), ["partition 0: the index has nothing for offsets 5 to 6"]),
        (ArchivePiece(0, 3, 9), ["partition 0: the index has offsets 3 to 4 twice"]),
        (ArchivePiece(0, 1, 3), ["partition 0: the index has offsets 1 to 2 twice"]),
        (ArchivePiece(1, 1, 3), []),
    ],
)
def test_gaps_and_overlaps_between_archive_pieces_are_described(second: ArchivePiece, told: list[str]) -> None:
    assert misplaced([second, ArchivePiece(0, 0, 5)]) == told


def test_pieces_survive_encoding() -> None:
    piece = ArchivePiece(3, 3, 9, files=(FILE, FILE._replace(rows=1)))
    assert from_json(to_json(piece)) == piece
    assert (piece.rows, piece.size_bytes) == (6, 1400)
