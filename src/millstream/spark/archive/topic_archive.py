"""One topic's archive: its index, its files, and how a batch becomes part of it.

    data/topic=T/date=D/partition=N/<first offset>-<random>.parquet    messages
    _millstream/T/archive.json                                           which topic it is
    _millstream/T/index/<first>-<last>.parquet                           pieces, in segments
    _millstream/T/staged/                                                files of a batch that is not committed yet

A batch is committed by one new segment, made in one step: from then on its pieces are part of the archive, and before
it nothing of them. Files are written beside (`staged`) and moved after the commit, so that under `data` there is
nothing that the index does not name, whatever was killed. Between commit and move a file is found where it was
written. What is left in `staged` is moved or deleted when the archive is next opened for writing.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.archive.archive_pieces import ArchivePiece, StoredFile, added
from millstream.spark.archive.index_segments import (
    ArchivedRange,
    CommitSpan,
    decode,
    due,
    encode,
    extents,
    first_at,
    living,
    merge,
    missing,
    span_of,
)
from millstream.spark.archive.store import ArchiveStore, Entry, store_of

T = TypeVar("T")

HOME = "_millstream"
FORMAT = 1
"""Of the index. A version that cannot read what is there says so; the files are Parquet whatever happens."""
_RELISTED = 5
"""How often the index is listed again when a segment has been merged meanwhile."""


class TopicArchive:
    """Reads; several may, while one writes."""

    def __init__(self, path: str, topic: str) -> None:
        self.path = path
        self.topic = topic
        self.store: ArchiveStore = store_of(path)
        self.data = f"data/topic={topic}"
        self.home = f"{HOME}/{topic}"
        self.staged = f"{self.home}/staged"
        self.index = f"{self.home}/index"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps how far it is."""
        return self.store.full(f"{self.home}/checkpoint")

    def topic_id(self) -> UUID | None:
        """None where nothing of the topic is archived. INVALID_REQUEST for an archive of another format."""
        try:
            found = json.loads(self._manifest())
        except FileNotFoundError:
            self._check_unknown()
            return None
        if found["format"] != FORMAT:
            text = f"the archive in {self.path} has format {found['format']}, and this version knows {FORMAT}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        return UUID(found["id"])

    def begin(self, topic_id: UUID) -> None:
        """Make it, unless it is there. UNKNOWN_TOPIC_ID when it is that of another topic of this name."""
        if self.topic_id() is None:
            for directory in (self.data, self.index, self.staged):
                self.store.make_directory(directory)
            text = json.dumps({"format": FORMAT, "topic": self.topic, "id": str(topic_id)})
            with suppress(FileExistsError):  # Somebody else has begun it in the same moment.
                self.store.create(f"{self.home}/archive.json", text.encode())
            self.store.keep("", HOME, "data")
        found = self.topic_id()
        assert found is not None, "it was made just now"
        self.check_topic(found, topic_id)

    def _manifest(self) -> bytes:
        return self.store.read(f"{self.home}/archive.json")

    def _has_manifest(self, folder: str) -> bool:
        return any(each.name == "archive.json" for each in self.store.names(f"{folder}/{self.topic}"))

    def _check_unknown(self) -> None:
        """INVALID_REQUEST for an archive that another program or version made here.

        It shows by files of the topic without our `archive.json`, which is written before any of them, or by an
        `archive.json` in a folder of another name.
        """
        others = (name for name in self.store.directories("") if name != HOME)
        foreign = next((name for name in others if self._has_manifest(name)), None)
        if foreign is None and next(self.store.below(self.data), None) is None:
            return
        with suppress(FileNotFoundError):
            self._manifest()  # Another process has begun the archive meanwhile.
            return
        text = (
            f"{self.path} has an archive of topic {self.topic!r} in an unknown format: there is no "
            f"{self.home}/archive.json beside {f'{foreign}/{self.topic}' if foreign else self.data}; "
            "choose another directory"
        )
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)

    def check_topic(self, archived: UUID, found: UUID) -> None:
        if archived != found:
            text = (
                f"topic {self.topic!r} was deleted and made anew: its id is {found}, and {self.path} has the one"
                f" with the id {archived}; each has to have an archive of its own"
            )
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, text)

    # The index.

    def spans(self) -> dict[CommitSpan, Entry]:
        """Its segments, in order; what was merged is left out. CORRUPT_MESSAGE where one is missing.

        One that is merged while the directory is listed may be seen in neither form: so it is listed again.
        """
        for _ in range(_RELISTED):
            found = {span: entry for entry in self.store.names(self.index) if (span := span_of(entry.name)) is not None}
            spans = living(found)
            gap = missing(spans)
            if gap is None:
                return {span: found[span] for span in spans}
        assert gap is not None, "it was looked for at least once"
        raise self._unreadable(f"what the commits {gap.first} to {gap.last} have added is missing")

    def extents(self) -> dict[int, ArchivedRange]:
        """What there is of each partition. CORRUPT_MESSAGE where the index cannot be read, here and below."""
        together: dict[int, ArchivedRange] = {}
        for found in self._each_segment(_extents_of):
            for partition, extent in found.items():
                together[partition] = together.get(partition, ArchivedRange()).together(extent)
        return together

    def pieces(self, partition: int | None = None, start: int = 0, end: int = 2**63 - 1) -> list[ArchivePiece]:
        """All, or those with some of these offsets of a partition; in order."""
        found = self._each_segment(lambda store, path, _: decode(store.open_input(path), partition, start, end))
        return sorted(piece for some in found for piece in some)

    def first_at(self, partition: int, time_ms: int, before: int) -> ArchivePiece | None:
        """The first piece with a message as late as this, of those that begin before an offset."""
        found = self._each_segment(lambda store, path, _: first_at(store.open_input(path), partition, time_ms, before))
        return min((piece for piece in found if piece is not None), default=None)

    def _each_segment(self, read: Callable[[ArchiveStore, str, tuple[int, int]], T]) -> list[T]:
        for _ in range(_RELISTED):
            try:
                return [read(self.store, f"{self.index}/{e.name}", e.stamp) for e in self.spans().values()]
            except FileNotFoundError as error:
                gone = error
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._unreadable(error) from None
        raise gone

    def _unreadable(self, why: object) -> MillstreamError:
        text = f"the index of the archive of {self.topic!r} in {self.path} cannot be read: {why}"
        return MillstreamError(ErrorCode.CORRUPT_MESSAGE, text)

    # The files.

    def place(self, file: StoredFile) -> str:
        return f"{self.data}/{file.name}"

    def staged_place(self, file: StoredFile) -> str:
        return f"{self.staged}/{file.name.rpartition('/')[2]}"

    def open(self, file: StoredFile) -> pa.NativeFile:
        """FileNotFoundError where it is gone."""
        for path in (self.place(file), self.staged_place(file)):
            try:
                return self.store.open_input(path)
            except FileNotFoundError:
                pass
        return self.store.open_input(self.place(file))  # It may have been moved between the two looks.


@lru_cache(maxsize=1024)
def _extents_of(store: ArchiveStore, path: str, stamp: tuple[int, int]) -> dict[int, ArchivedRange]:
    """Segments never change; another one under this name has another stamp."""
    return extents(store.open_input(path))


class ArchiveWriter:
    """Writes: the only one that does, which on a local disk a lock makes sure of."""

    def __init__(self, shelf: TopicArchive) -> None:
        self._shelf = shelf
        self._store = shelf.store
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_failed = False
        """In a commit: whether it counts, only the index knows."""
        self._spans = list(shelf.spans())
        self.ends = {partition: extent.end for partition, extent in shelf.extents().items()}
        """Up to where each partition is archived."""

    def recover(self) -> None:
        """Finish, or take back, what a keeper before this one has left."""
        shelf = self._shelf
        for entry in self._store.names(shelf.index):
            span = span_of(entry.name)
            if span is not None and span not in self._spans:
                self._store.delete(f"{shelf.index}/{entry.name}")
        staged = {entry.name for entry in self._store.names(shelf.staged)}
        last = [span for span in self._spans[-1:] if span.length == 1]  # What was merged was moved before.
        pieces = [piece for span in last for piece in decode(self._store.open_input(f"{shelf.index}/{span.name}"))]
        self._move(file for piece in pieces for file in piece.files if file.name.rpartition("/")[2] in staged)
        self._discard()
        self._merge()

    def close(self) -> None:
        """Delete files that no commit has named; one that is under way is waited for, and none comes after it.

        After one that failed, everything is left as it is: the index may name these files, and the next start knows.
        """
        with self._lock:
            self._is_closed = True
            if not self._has_failed:
                self._discard()

    def _discard(self) -> None:
        for entry in self._store.names(self._shelf.staged):
            self._store.delete(f"{self._shelf.staged}/{entry.name}")

    def commit(self, pieces: Sequence[ArchivePiece], *, may_lack: bool = False) -> list[ArchivePiece]:
        """Add a batch; what of it was new. DATA_DIRECTORY_IN_USE when somebody else has added to the archive.

        OFFSET_OUT_OF_RANGE for a batch that leaves offsets out, unless it `may_lack` what had gone from the log.

        After a failure there is no other: whether the batch was added is found out by the next keeper.
        """
        with self._lock:
            assert not self._is_closed, "what was staged is deleted"
            assert not self._has_failed, "what was staged may be committed"
            self._has_failed = True
            new = self._commit(pieces, may_lack)
            self._has_failed = False
            return new

    def _commit(self, pieces: Sequence[ArchivePiece], may_lack: bool) -> list[ArchivePiece]:
        shelf = self._shelf
        try:
            new = added(self.ends, pieces)
        except ValueError as error:
            raise _in_use(shelf, str(error)) from None
        for piece in new:
            if piece.is_lost and not may_lack:
                where = TopicPartition(shelf.topic, piece.partition)
                text = f"{where}: offsets {piece.start} to {piece.end - 1} are missing in what was to be archived"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if new:
            span = CommitSpan(number := self._spans[-1].last + 1 if self._spans else 0, number)
            self._store.keep(shelf.staged)
            try:
                self._store.create(f"{shelf.index}/{span.name}", encode(new))
            except FileExistsError:
                raise _in_use(shelf, f"the commit {number} is there already") from None
            self._spans.append(span)
            self.ends |= {piece.partition: piece.end for piece in new}
            self._move(file for piece in new for file in piece.files)
            self._merge()
        for piece in set(pieces).difference(new):
            for file in piece.files:
                self._store.delete(shelf.staged_place(file))
        return new

    def _move(self, files: Iterable[StoredFile]) -> None:
        """To where everybody looks for them."""
        shelf = self._shelf
        changed: set[str] = set()
        for file in files:
            directory = shelf.place(file).rpartition("/")[0]
            if directory not in changed:
                self._store.make_directory(directory)
            self._store.move(shelf.staged_place(file), shelf.place(file))
            # A new directory is known to the one above, and that one may be new itself.
            changed |= {directory, directory.rpartition("/")[0], shelf.data}
        self._store.keep(*sorted(changed))

    def _merge(self) -> None:
        shelf = self._shelf
        while parts := due(self._spans):
            whole = CommitSpan(parts[0].first, parts[-1].last)
            data = merge(self._store.open_input(f"{shelf.index}/{span.name}") for span in parts)
            if data is None:
                break
            self._store.create(f"{shelf.index}/{whole.name}", data)
            self._spans[-len(parts) :] = [whole]
            for span in parts:
                self._store.delete(f"{shelf.index}/{span.name}")


def _in_use(shelf: TopicArchive, why: str) -> MillstreamError:
    text = f"somebody else writes the archive of {shelf.topic!r} in {shelf.path}: {why}"
    return MillstreamError(ErrorCode.DATA_DIRECTORY_IN_USE, text)


@contextmanager
def kept(shelf: TopicArchive) -> Iterator[ArchiveWriter]:
    """The archive to write to, as its only writer on this disk. DATA_DIRECTORY_IN_USE when it has another.

    Other file systems than local ones have no lock: there it is for the caller to let one write at a time.
    """
    if not shelf.store.is_local:
        yield ArchiveWriter(shelf)
        return
    descriptor = os.open(shelf.store.full(f"{shelf.home}/lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(shelf, "it holds the lock, and has to end first") from None
        yield ArchiveWriter(shelf)
    finally:
        os.close(descriptor)


def topics_in(path: str) -> list[str]:
    """The topics that have an archive there."""
    return store_of(path).directories(HOME)
