"""Tests the index segments: merging loses nothing and keeps them few."""

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.archive.archive_pieces import ArchivePiece, StoredFile
from millstream.spark.archive.index_segments import (
    FANOUT,
    ArchivedRange,
    CommitSpan,
    decode,
    due,
    encode,
    extents,
    first_at,
    living,
    merge,
    span_of,
)

BIG = 2**61
"""The sum of two of these still fits into 64 bits."""
files = st.builds(
    StoredFile,
    st.text("abc=/", min_size=1, max_size=20),
    *(st.integers(0, BIG) for _ in range(5)),
    st.integers(-BIG, BIG),
    st.integers(-BIG, BIG),
)
pieces = st.builds(
    ArchivePiece,
    st.integers(0, 3),
    st.integers(0, 100),
    st.integers(101, 200),
    st.booleans(),
    st.lists(files, max_size=2).map(tuple),
)


def after(commits: int) -> list[CommitSpan]:
    spans: list[CommitSpan] = []
    for number in range(commits):
        spans.append(CommitSpan(number, number))
        while parts := due(spans):
            spans[-len(parts) :] = [CommitSpan(parts[0].first, parts[-1].last)]
    return spans


@given(st.integers(1, 5000))
def test_every_commit_is_in_one_segment_and_segments_are_few(commits: int) -> None:
    spans = after(commits)
    assert [number for span in spans for number in range(span.first, span.last + 1)] == list(range(commits))
    assert len(spans) <= (FANOUT - 1) * (1 + math.log(commits, FANOUT))


@given(st.integers(1, 600), st.data())
def test_segments_that_a_merged_segment_contains_are_ignored(commits: int, data: st.DataObject) -> None:
    spans = after(commits)
    parts = [CommitSpan(number, number) for number in data.draw(st.lists(st.integers(0, commits - 1)))]
    assert living(data.draw(st.permutations([*spans, *parts]))) == spans


@given(st.integers(0, 10**11), st.integers(0, 10**11))
def test_index_segment_name_encodes_its_commit_span(first: int, length: int) -> None:
    span = CommitSpan(first, first + length)
    assert span_of(span.name) == span


@pytest.mark.parametrize("name", ["", "-.parquet", "1-2.parquet", "x.parquet", "000000000001-000000000002.crc"])
def test_other_file_names_are_not_segments(name: str) -> None:
    assert span_of(name) is None


@given(st.lists(pieces, max_size=8))
def test_segments_survive_encoding(given_pieces: list[ArchivePiece]) -> None:
    data = encode(given_pieces)
    assert sorted(decode(pa.BufferReader(data))) == sorted(given_pieces)
    wanted = [piece for piece in given_pieces if piece.partition == 1 and piece.start < 60 and piece.end > 150]
    assert sorted(decode(pa.BufferReader(data), 1, start=150, end=60)) == sorted(wanted)


@pytest.mark.parametrize(
    "read", [lambda file: decode(file, 0, start=0, end=3), lambda file: first_at(file, 0, time_ms=0, before=3), extents]
)
def test_a_flipped_bit_in_a_segment_is_detected_or_harmless(read: Callable[[Any], object]) -> None:
    data = encode([ArchivePiece(0, 0, 5), ArchivePiece(0, 5, 7, is_lost=True)])
    told = 0
    for at in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            read(pa.BufferReader(bytes(damaged)))
        except (pa.ArrowException, OSError, ValueError):
            told += 1
    assert told > len(data) / 12


def test_lookups_work_across_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.spark.archive.index_segments._GROUP_ROWS", 3)
    line = [ArchivePiece(partition, start, start + 1) for partition in range(3) for start in range(5)]
    file = pa.BufferReader(encode(line))
    assert decode(file, 1, start=2, end=4) == line[7:9]
    assert decode(file, 1, start=5, end=9) == []
    assert decode(file) == line


@given(st.lists(st.lists(pieces, max_size=4), min_size=1, max_size=4))
def test_a_merged_segment_has_all_pieces_in_order(parts: list[list[ArchivePiece]]) -> None:
    data = merge(pa.BufferReader(encode(part)) for part in parts)
    assert data is not None
    found = decode(pa.BufferReader(data))
    assert sorted(found) == sorted(piece for part in parts for piece in part)
    assert found == sorted(found, key=attrgetter("partition", "start"))


def test_segments_are_not_merged_when_the_result_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.spark.archive.index_segments.MERGED_ROWS", 2)
    part = encode([ArchivePiece(0, 0, 5)])
    assert merge([pa.BufferReader(part)] * 3) is None
    assert merge([pa.BufferReader(part)] * 2) is not None


@given(st.lists(pieces, max_size=8), st.integers(-BIG, BIG), st.integers(0, 100))
def test_the_first_piece_at_or_after_a_time_is_found(
    given_pieces: list[ArchivePiece], time_ms: int, before: int
) -> None:
    late = [
        piece
        for piece in given_pieces
        if piece.partition == 1 and piece.start < before and any(file.latest_ms >= time_ms for file in piece.files)
    ]
    found = first_at(pa.BufferReader(encode(given_pieces)), 1, time_ms=time_ms, before=before)
    if found is None:
        assert not late
    else:
        assert found in late
        assert found.start == min(piece.start for piece in late)


def test_archived_ranges_of_several_segments_are_summed_per_partition() -> None:
    file = StoredFile("name", 0, 4, 5, 100, 0, 0, 0)
    first = [ArchivePiece(0, 0, 5, files=(file,)), ArchivePiece(0, 5, 7, is_lost=True), ArchivePiece(1, 2, 3)]
    second = [ArchivePiece(0, 7, 9, files=(file, file))]
    whole = extents(pa.BufferReader(encode([*first, *second])))
    assert whole == {0: ArchivedRange([(0, 5), (7, 9)], [(5, 7)], 15, 300), 1: ArchivedRange([(2, 3)], [])}
    parts = [extents(pa.BufferReader(encode(each)))[0] for each in (first, second)]
    assert parts[0].together(parts[1]) == whole[0]
    assert whole[0].end == 9
