"""Tests that an archive survives every failure of its writer: a batch is part of it completely or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from pyarrow import fs

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.consuming.arrow import SCHEMA
from millstream.spark.archive.archive_pieces import ArchivePiece
from millstream.spark.archive.index_segments import FANOUT, CommitSpan
from millstream.spark.archive.parquet_files import PieceWriter, read_piece
from millstream.spark.archive.store import ArchiveStore, store_of
from millstream.spark.archive.topic_archive import ArchiveWriter, TopicArchive, kept

ID = UUID(int=7)
DAY_MS = 86_400_000
ROWS = 4
"""Number of offsets in each piece."""


def messages(
    partition: int, start: int, end: int, time_ms: Callable[[int], int] = lambda offset: offset
) -> pa.RecordBatch:
    offsets = range(start, end)
    rows = [
        {
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": time_ms(offset),
            "key": None if offset % 2 else b"",
            "value": b"%d" % offset if offset % 3 else None,
            "headers": [{"key": "h", "value": None}] if offset % 5 == 0 else [],
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def written(shelf: TopicArchive, batch: pa.RecordBatch, start: int, end: int) -> ArchivePiece:
    writer = PieceWriter(shelf, batch.column("partition")[0].as_py())
    writer.write(batch)
    return writer.finish(start, end=end)


def batch_of(shelf: TopicArchive, number: int) -> list[ArchivePiece]:
    start, end = number * ROWS, (number + 1) * ROWS
    return [written(shelf, messages(partition, start, end), start, end) for partition in range(2)]


def made(path: Path) -> TopicArchive:
    shelf = TopicArchive(str(path), "orders")
    shelf.begin(ID)
    return shelf


def offsets(shelf: TopicArchive, partition: int) -> list[int]:
    found: list[int] = []
    for piece in shelf.pieces(partition):
        for batch in read_piece(shelf, piece, piece.start, end=piece.end, names=["value"]):
            found += batch.column("offset").to_pylist()
    return found


def files_under(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


def test_after_many_batches_the_index_has_few_files_and_every_piece(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    commits = 2 * FANOUT + 3
    with kept(shelf) as keeper:
        for number in range(commits):
            assert len(keeper.commit(batch_of(shelf, number))) == 2
            assert keeper.commit(batch_of(shelf, number)) == []
    assert len(shelf.spans()) == 2 + 3
    assert len(files_under(tmp_path / "_millstream" / "orders" / "index")) == 2 + 3
    assert offsets(shelf, 1) == list(range(commits * ROWS))
    assert keeper.ends == {0: commits * ROWS, 1: commits * ROWS}
    assert not files_under(tmp_path / "_millstream" / "orders" / "staged")


def test_a_batch_with_a_gap_is_refused_unless_losses_are_allowed(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    with kept(shelf) as keeper:
        keeper.commit(batch_of(shelf, 0))
        with pytest.raises(MillstreamError, match="orders-0: offsets 4 to 7 are missing in the batch to archive"):
            keeper.commit(batch_of(shelf, 2))
    with kept(shelf) as keeper:
        keeper.recover()
        assert keeper.ends == {0: ROWS, 1: ROWS}
        keeper.commit(batch_of(shelf, 2), may_lack=True)
    assert shelf.extents()[0].lost == [(ROWS, 2 * ROWS)]


def test_commits_continue_when_segments_have_reached_their_maximum_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.spark.archive.index_segments.FANOUT", 2)
    monkeypatch.setattr("millstream.spark.archive.index_segments.MERGED_ROWS", 8)
    shelf = made(tmp_path)
    for number in range(13):
        with kept(shelf) as keeper:
            keeper.recover()
            keeper.commit(batch_of(shelf, number))
            keeper.close()
    assert [span.length for span in shelf.spans()] == [4, 4, 4, 1]
    assert offsets(shelf, 1) == list(range(13 * ROWS))


class KilledError(BaseException):
    """Simulates the end of the process."""


class Failure(NamedTuple):
    """A file operation that fails, before or after it takes effect. All later operations fail too, unless `is_last`."""

    error: BaseException
    is_late: bool = False
    is_last: bool = False

    def after(self, done: int) -> Iterator[bool]:
        """Yields, for each operation, whether it fails: the first failure comes after `done` operations."""
        return chain(repeat(False, done), [True], repeat(not self.is_last))


class Mortal(ArchiveStore):
    def __init__(self, store: ArchiveStore, failure: Failure, is_failing: Iterator[bool]) -> None:
        super().__init__(store.filesystem, store.root)
        self._failure = failure
        self._is_failing = is_failing

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("create", "move", "delete", "make_directory", "keep", "open_output"):
            return partial(self._do, found)
        return found

    def _do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        if not next(self._is_failing):
            return work(*arguments)
        if self._failure.is_late:
            work(*arguments)
        raise self._failure.error


def work(path: Path, batches: int) -> None:
    """Runs the archive as a start of it does: recovers, then commits the missing batches."""
    shelf = made(path)
    with kept(shelf) as keeper:
        keeper.recover()
        try:
            for number in range(keeper.ends.get(0, 0) // ROWS, batches):
                keeper.commit(batch_of(shelf, number))
        except OSError:
            with suppress(OSError):
                keeper.close()
            raise
        keeper.close()


@pytest.mark.parametrize(
    "failure",
    [
        Failure(KilledError()),
        Failure(OSError("no room")),
        Failure(OSError("no answer"), is_last=True),
        Failure(OSError("the answer is lost"), is_late=True, is_last=True),
    ],
    ids=lambda failure: repr(failure.error),
)
def test_an_archive_recovers_exactly_after_a_failure_of_any_file_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    monkeypatch.setattr("millstream.spark.archive.index_segments.FANOUT", 2)
    monkeypatch.setattr("os.fsync", lambda file: None)  # No power failure in this test.
    batches = 3
    for lives in count():
        path = tmp_path / str(lives)
        path.mkdir()
        with monkeypatch.context() as patched:
            mortal = partial(Mortal, store_of(str(path)), failure, failure.after(lives))
            patched.setattr("millstream.spark.archive.topic_archive.store_of", lambda path: mortal())  # noqa: B023
            try:
                work(path, batches)
                break
            except (KilledError, OSError):
                pass
        half = TopicArchive(str(path), "orders")
        reached = {partition: extent.end for partition, extent in half.extents().items()}
        assert [offsets(half, partition) for partition in reached] == [list(range(end)) for end in reached.values()]
        known = {half.place(file) for piece in half.pieces() for file in piece.files}
        assert {f"data/{name}" for name in files_under(path / "data")} <= known
        work(path, batches)
        whole = TopicArchive(str(path), "orders")
        assert [offsets(whole, partition) for partition in range(2)] == [list(range(batches * ROWS))] * 2
        known = {whole.place(file) for piece in whole.pieces() for file in piece.files}
        assert {f"data/{name}" for name in files_under(path / "data")} == known
        assert not files_under(path / "_millstream" / "orders" / "staged")
    assert lives > 30


def test_files_are_flushed_before_the_commit_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = made(tmp_path)
    batch = batch_of(shelf, 0)
    done: list[tuple[str, ...]] = []
    with kept(shelf) as keeper, monkeypatch.context() as patched:
        for name in ("keep", "create"):
            patched.setattr(shelf.store, name, lambda *paths, name=name: done.append((name, *paths[:1])))
        keeper.commit(batch)
    assert done[:2] == [("keep", shelf.staged), ("create", f"{shelf.index}/{CommitSpan(0, 0).name}")]


def test_only_one_writer_is_accepted_at_a_time(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    with kept(shelf):
        with pytest.raises(MillstreamError, match="it holds the lock") as caught, kept(shelf):
            pass
        assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
    stale, other = ArchiveWriter(shelf), ArchiveWriter(shelf)
    other.commit(batch_of(shelf, 0))
    with pytest.raises(MillstreamError, match="commit 0 already exists"):
        stale.commit(batch_of(shelf, 0))


def test_two_processes_may_create_an_archive_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = TopicArchive(str(tmp_path), "orders")
    create = shelf.store.create

    def overtaken(path: str, data: bytes) -> None:
        create(path, data)
        create(path, data)

    monkeypatch.setattr(shelf.store, "create", overtaken)
    shelf.begin(ID)
    assert shelf.topic_id() == ID


def test_a_full_disk_is_reported_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    store = ArchiveStore(fs.LocalFileSystem(), str(tmp_path))
    for work in (partial(store.create, "a", b"x"), partial(store.keep, "a"), partial(store.make_directory, "a/b")):
        with pytest.raises(OSError, match=r"No space left on device|Not a directory") as caught:
            work()
        (tmp_path / "a").touch()
        assert caught.value.filename.startswith(str(tmp_path / "a"))


def test_an_archive_of_another_topic_or_format_is_refused(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    with pytest.raises(MillstreamError, match="archive the new topic in another directory"):
        shelf.begin(UUID(int=8))
    manifest = tmp_path / "_millstream" / "orders" / "archive.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(MillstreamError, match="has format 2; this version supports format 1"):
        shelf.begin(ID)


def test_a_directory_with_files_of_an_unknown_archive_format_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "_millstream").rename(tmp_path / "_other")
    (tmp_path / "data" / "topic=orders" / "one.parquet").touch()
    _refused_as_unknown(tmp_path)


def test_an_empty_archive_in_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "_millstream").rename(tmp_path / "_other")
    _refused_as_unknown(tmp_path)


def _refused_as_unknown(path: Path) -> None:
    for use in (lambda: made(path), lambda: TopicArchive(str(path), "orders").topic_id()):
        with pytest.raises(MillstreamError, match="in an unknown format") as error:
            use()
        assert error.value.code is ErrorCode.INVALID_REQUEST
    assert not (path / "_millstream").exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:60] + b"x" + data[61:]])
def test_a_damaged_index_is_reported(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    shelf = made(tmp_path)
    with kept(shelf) as keeper:
        keeper.commit(batch_of(shelf, 0))
    (segment,) = (tmp_path / "_millstream" / "orders" / "index").iterdir()
    segment.write_bytes(damage(segment.read_bytes()))
    for read in (shelf.extents, shelf.pieces):
        with pytest.raises(MillstreamError, match=r"the index of the archive of 'orders' .* cannot be read") as caught:
            read()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_missing_segment_of_the_index_is_reported(tmp_path: Path) -> None:
    shelf = made(tmp_path)
    with kept(shelf) as keeper:
        for number in range(3):
            keeper.commit(batch_of(shelf, number))
    (tmp_path / shelf.index / CommitSpan(0, 0).name).unlink()
    for read in (shelf.extents, shelf.pieces, partial(ArchiveWriter, shelf)):
        with pytest.raises(MillstreamError, match="the segment of commits 0 to 0 is missing") as caught:
            read()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_index_merged_during_a_listing_is_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = made(tmp_path)
    with kept(shelf) as keeper:
        for number in range(3):
            keeper.commit(batch_of(shelf, number))
    whole = shelf.store.names(shelf.index)
    seen = iter([[each for each in whole if each.name != CommitSpan(1, 1).name], whole])
    monkeypatch.setattr(shelf.store, "names", lambda path: next(seen))
    assert len(shelf.spans()) == 3


def test_an_archive_works_on_a_file_system_that_is_not_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.spark.archive.index_segments.FANOUT", 3)
    store = ArchiveStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bucket")
    monkeypatch.setattr("millstream.spark.archive.topic_archive.store_of", lambda path: store)
    assert not store.is_local
    shelf = TopicArchive("s3://bucket", "orders")
    assert shelf.topic_id() is None
    shelf.begin(ID)
    for number in range(4):
        with kept(shelf) as keeper:
            keeper.recover()
            keeper.commit(batch_of(shelf, number))
            batch_of(shelf, number)  # Written, but never committed.
    with kept(shelf) as keeper:
        keeper.recover()
        with pytest.raises(FileExistsError):
            store.create("_millstream/orders/archive.json", b"")
    assert [offsets(shelf, partition) for partition in range(2)] == [list(range(4 * ROWS))] * 2
    assert not files_under(tmp_path / "bucket" / shelf.staged)
    assert len(files_under(tmp_path / "bucket" / "data")) == 8
