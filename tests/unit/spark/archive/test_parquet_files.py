"""Tests Parquet files by day: messages come back unchanged and in offset order."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.archive import parquet_files as files_module
from millstream.spark.archive.archive_pieces import ArchivePiece
from millstream.spark.archive.parquet_files import OPEN_MAX, SCHEMA, read_piece
from millstream.spark.archive.store import ArchiveStore
from millstream.spark.archive.topic_archive import TopicArchive
from unit.spark.archive.test_topic_archive import DAY_MS, made, messages, written


def read(shelf: TopicArchive, piece: ArchivePiece, start: int, end: int) -> pa.Table:
    batches = [batch.select(SCHEMA.names) for batch in read_piece(shelf, piece, start, end=end)]
    return pa.Table.from_batches(batches, SCHEMA)


@given(
    st.lists(st.sampled_from([0, 1, 2, -1, -400, 10**6, -(10**6), 10**10, -(10**10)]), min_size=1, max_size=40),
    st.integers(0, 45),
    st.integers(0, 45),
)
def test_messages_of_mixed_days_come_back_unchanged_and_in_order(days: list[int], start: int, end: int) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as path:
        patched.setattr(files_module, "GROUP_BYTES", 200)
        shelf = made(Path(path))
        batch = messages(0, 0, len(days), lambda offset: days[offset] * DAY_MS + 5)
        piece = written(shelf, batch, 0, len(days))
        assert read(shelf, piece, 0, len(days)).equals(pa.Table.from_batches([batch.select(SCHEMA.names)]))
        found = read(shelf, piece, start, end).column("offset").to_pylist()
        assert found == list(range(start, min(end, len(days))))
        assert sum(file.rows for file in piece.files) == len(days)


def test_a_stored_file_records_its_day_offsets_times_and_size(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    piece = written(shelf, messages(3, 10, 20, lambda offset: offset * DAY_MS // 2), 10, 25)
    assert (piece.partition, piece.start, piece.end, piece.rows) == (3, 10, 25, 10)
    first = piece.files[0]
    assert first.name.startswith("date=1970-01-06/partition=3/00000000000000000010-")
    assert (first.first, first.last, first.rows) == (10, 11, 2)
    assert (first.earliest_ms, first.latest_ms) == (10 * DAY_MS // 2, 11 * DAY_MS // 2)
    assert (tmp_path / shelf.staged_place(first)).stat().st_size == first.size_bytes


def test_times_outside_the_calendar_go_to_its_first_or_last_day(tmp_path: Path) -> None:
    piece = written(made(tmp_path), messages(0, 0, 2, lambda offset: (2**62, -(2**62))[offset]), 0, 2)
    assert [file.name.partition("/")[0] for file in piece.files] == ["date=9999-12-31", "date=0001-01-01"]


def test_a_new_file_begins_when_the_current_one_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "GROUP_BYTES", 1)
    monkeypatch.setattr(files_module, "ROLL_BYTES", 1)
    shelf = made(tmp_path)
    writer = files_module.PieceWriter(shelf, 0)
    for start in range(0, 30, 10):
        writer.write(messages(0, start, start + 10))
    piece = writer.finish(0, end=30)
    assert [(file.first, file.last) for file in piece.files] == [(0, 9), (10, 19), (20, 29)]
    assert read(shelf, piece, 0, 30).num_rows == 30


def test_more_days_than_open_files_get_one_file_each(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    days = 3 * OPEN_MAX
    piece = written(shelf, messages(0, 0, 2 * days, lambda offset: offset % days * DAY_MS), 0, 2 * days)
    assert len(piece.files) == days
    assert read(shelf, piece, 0, 2 * days).column("offset").to_pylist() == list(range(2 * days))


def test_a_discarded_piece_leaves_no_files(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    writer = files_module.PieceWriter(shelf, 0)
    writer.write(messages(0, 0, 10, lambda offset: offset * DAY_MS))
    writer.discard()
    assert not list((tmp_path / shelf.staged).iterdir())


def test_a_missing_or_damaged_file_is_reported(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    piece = written(shelf, messages(0, 0, 3), 0, 3)
    path = tmp_path / shelf.staged_place(piece.files[0])
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(MillstreamError, match="cannot be read") as caught:
            read(shelf, piece, 0, 3)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        path.unlink(missing_ok=True)


class Full(ArchiveStore):
    """A file system with limited space in each file."""

    room_bytes = 0

    def open_output(self, path: str) -> Any:
        return FullFile(super().open_output(path), self.room_bytes)


class FullFile:
    def __init__(self, file: Any, room_bytes: int) -> None:
        self._file = file
        self._room_bytes = room_bytes

    def write(self, data: bytes) -> int:
        if len(data) > self._room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room_bytes -= len(data)
        written: int = self._file.write(data)
        return written

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("room_bytes", [0, 4, 100, 1000])
def test_a_full_disk_is_reported_and_written_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    monkeypatch.setattr(files_module, "GROUP_BYTES", 1)
    shelf = made(tmp_path)
    shelf.store = Full(shelf.store.filesystem, shelf.store.root)
    shelf.store.room_bytes = room_bytes
    writer = files_module.PieceWriter(shelf, 0)

    def work() -> None:
        writer.write(messages(0, 0, 20, lambda offset: offset // 10 * DAY_MS))
        writer.finish(0, end=20)

    with pytest.raises(OSError, match="No space left on device") as caught:
        work()
    assert Path(caught.value.filename) in (tmp_path / shelf.staged).iterdir()
    writer.discard()
    assert not list((tmp_path / shelf.staged).iterdir())


@pytest.mark.parametrize("wanted", [(0, 20), (5, 12)], ids=["all of it", "part of it"])
def test_damaged_file_metadata_is_reported_with_the_file_name(tmp_path: Path, wanted: tuple[int, int]) -> None:
    """Damage to bytes without a checksum may be harmless.

    If it is not, the read fails with this error and never crashes.
    """
    shelf = made(tmp_path)
    piece = written(shelf, messages(0, 0, 20, lambda offset: offset), 0, 20)
    (file,) = piece.files
    place = tmp_path / shelf.staged_place(file)
    good = place.read_bytes()
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    cut = [good[:size] for size in (0, 3, 11, footer, len(good) - 1)]
    flipped = [good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :] for at in range(footer, len(good), 2)]
    refused = []
    for bad in cut + flipped:
        place.write_bytes(bad)
        try:
            read(shelf, piece, *wanted)
        except MillstreamError as error:
            refused.append((error.code, file.name in error.detail))
    assert set(refused) == {(ErrorCode.CORRUPT_MESSAGE, True)}
    assert len(refused) > len(cut) + len(flipped) // 4
