"""Manages the archive of one topic: its index, its files, and the commit of a batch.

    data/topic=T/date=D/partition=N/<first offset>-<random>.parquet    messages
    _millstream/T/archive.json                                           the topic's id
    _millstream/T/index/<first>-<last>.parquet                           pieces, in segments
    _millstream/T/staged/                                                files of a batch that is not committed yet

One new segment, created atomically, commits a batch: its pieces are part of the archive from then on. Files are written
to `staged` and moved after the commit. So `data` never has a file that the index does not name, even after a kill.
Between commit and move, a reader finds a file in `staged`. The next writer moves or deletes what a killed one left in
`staged`.
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
"""Format version of the index. Other versions are refused with an error. Data files are Parquet in every version."""
_RELISTED = 5
"""Maximum number of listings of the index, if segments are merged meanwhile."""


class TopicArchive:
    """Reads an archive. Several readers may run while one writer writes."""

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
        """Default directory of Spark's checkpoint."""
        return self.store.full(f"{self.home}/checkpoint")

    def topic_id(self) -> UUID | None:
        """Returns the id of the archived topic, or None if there is no archive.

        Raises INVALID_REQUEST for another format.
        """
        try:
            found = json.loads(self._manifest())
        except FileNotFoundError:
            self._check_unknown()
            return None
        if found["format"] != FORMAT:
            text = f"the archive in {self.path} has format {found['format']}; this version supports format {FORMAT}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
        return UUID(found["id"])

    def begin(self, topic_id: UUID) -> None:
        """Creates the archive if it does not exist.

        Raises UNKNOWN_TOPIC_ID if it belongs to another topic of this name.
        """
        if self.topic_id() is None:
            for directory in (self.data, self.index, self.staged):
                self.store.make_directory(directory)
            text = json.dumps({"format": FORMAT, "topic": self.topic, "id": str(topic_id)})
            with suppress(FileExistsError):  # Another process has created it at the same time.
                self.store.create(f"{self.home}/archive.json", text.encode())
            self.store.keep("", HOME, "data")
        found = self.topic_id()
        assert found is not None, "it was just created"
        self.check_topic(found, topic_id)

    def _manifest(self) -> bytes:
        return self.store.read(f"{self.home}/archive.json")

    def _has_manifest(self, folder: str) -> bool:
        return any(each.name == "archive.json" for each in self.store.names(f"{folder}/{self.topic}"))

    def _check_unknown(self) -> None:
        """Raises INVALID_REQUEST for an archive that another program or version created here.

        Such an archive has files of the topic without our `archive.json`, which is written before any of them, or an
        `archive.json` in a folder of another name.
        """
        others = (name for name in self.store.directories("") if name != HOME)
        foreign = next((name for name in others if self._has_manifest(name)), None)
        if foreign is None and next(self.store.below(self.data), None) is None:
            return
        with suppress(FileNotFoundError):
            self._manifest()  # Another process has created the archive meanwhile.
            return
        text = (
            f"{self.path} has an archive of topic {self.topic!r} in an unknown format: there is no "
            f"{self.home}/archive.json beside {f'{foreign}/{self.topic}' if foreign else self.data}; "
            "choose another directory"
        )
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)

    def check_topic(self, archived: UUID, found: UUID) -> None:
        """Raises UNKNOWN_TOPIC_ID if the ids differ."""
        if archived != found:
            text = (
                f"topic {self.topic!r} was deleted and recreated: its id is {found}, but {self.path} has the archive"
                f" of the topic with id {archived}; archive the new topic in another directory"
            )
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, text)

    # The index.

    def spans(self) -> dict[CommitSpan, Entry]:
        """Returns the segments of the index, in order, without merged ones. Raises CORRUPT_MESSAGE if one is missing.

        A listing during a merge may contain neither the merged segment nor its parts. So the index is listed again if
        there is a gap.
        """
        for _ in range(_RELISTED):
            found = {span: entry for entry in self.store.names(self.index) if (span := span_of(entry.name)) is not None}
            spans = living(found)
            gap = missing(spans)
            if gap is None:
                return {span: found[span] for span in spans}
        assert gap is not None, "the loop ran at least once"
        raise self._unreadable(f"the segment of commits {gap.first} to {gap.last} is missing")

    def extents(self) -> dict[int, ArchivedRange]:
        """Returns the archived range of each partition. Raises CORRUPT_MESSAGE if the index cannot be read."""
        together: dict[int, ArchivedRange] = {}
        for found in self._each_segment(_extents_of):
            for partition, extent in found.items():
                together[partition] = together.get(partition, ArchivedRange()).together(extent)
        return together

    def pieces(self, partition: int | None = None, *, start: int = 0, end: int = 2**63 - 1) -> list[ArchivePiece]:
        """Returns all pieces in order, or only those with some of these offsets of a partition.

        Raises CORRUPT_MESSAGE if the index cannot be read.
        """
        found = self._each_segment(
            lambda store, path, _: decode(store.open_input(path), partition, start=start, end=end)
        )
        return sorted(piece for some in found for piece in some)

    def first_at(self, partition: int, *, time_ms: int, before: int) -> ArchivePiece | None:
        """Returns the first piece that begins below `before` and has a message at or after a time.

        Raises CORRUPT_MESSAGE if the index cannot be read.
        """
        found = self._each_segment(
            lambda store, path, _: first_at(store.open_input(path), partition, time_ms=time_ms, before=before)
        )
        return min((piece for piece in found if piece is not None), default=None)

    def _each_segment(self, read: Callable[[ArchiveStore, str, tuple[int, int]], T]) -> list[T]:
        """Reads every segment; if one was merged and deleted meanwhile, lists the index again."""
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
        """Opens a file, in `data` or `staged`. Raises FileNotFoundError if it is in neither."""
        for path in (self.place(file), self.staged_place(file)):
            try:
                return self.store.open_input(path)
            except FileNotFoundError:
                pass
        return self.store.open_input(self.place(file))  # It may have been moved between the two attempts.


@lru_cache(maxsize=1024)
def _extents_of(store: ArchiveStore, path: str, stamp: tuple[int, int]) -> dict[int, ArchivedRange]:
    """Caches the ranges of a segment. Segments never change; a new segment under the same name has another stamp."""
    return extents(store.open_input(path))


class ArchiveWriter:
    """Writes an archive. There is only one writer; on a local disk a lock enforces that."""

    def __init__(self, topic_archive: TopicArchive) -> None:
        self._topic_archive = topic_archive
        self._store = topic_archive.store
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_failed = False
        """True after a commit failed. Only the index shows whether it took effect."""
        self._spans = list(topic_archive.spans())
        self.ends = {partition: extent.end for partition, extent in topic_archive.extents().items()}
        """The offset at which the archive of each partition ends."""

    def recover(self) -> None:
        """Completes or undoes what a killed writer left."""
        topic_archive = self._topic_archive
        for entry in self._store.names(topic_archive.index):
            span = span_of(entry.name)
            if span is not None and span not in self._spans:
                self._store.delete(f"{topic_archive.index}/{entry.name}")
        staged = {entry.name for entry in self._store.names(topic_archive.staged)}
        last = [span for span in self._spans[-1:] if span.length == 1]  # Files are moved before segments are merged.
        pieces = [
            piece for span in last for piece in decode(self._store.open_input(f"{topic_archive.index}/{span.name}"))
        ]
        self._move(file for piece in pieces for file in piece.files if file.name.rpartition("/")[2] in staged)
        self._discard()
        self._merge()

    def close(self) -> None:
        """Deletes uncommitted files. Waits for a running commit; no commit is possible afterwards.

        After a failed commit the files stay, because the index may name them. The next writer checks that.
        """
        with self._lock:
            self._is_closed = True
            if not self._has_failed:
                self._discard()

    def _discard(self) -> None:
        for entry in self._store.names(self._topic_archive.staged):
            self._store.delete(f"{self._topic_archive.staged}/{entry.name}")

    def commit(self, pieces: Sequence[ArchivePiece], *, may_lack: bool = False) -> list[ArchivePiece]:
        """Adds a batch and returns its new pieces.

        Raises DATA_DIRECTORY_IN_USE if another process has added to the archive. Raises OFFSET_OUT_OF_RANGE for a batch
        that leaves a gap, unless `may_lack` allows gaps of expired offsets.

        After a failure, this writer accepts no further commit: the next writer finds out whether the batch was added.
        """
        with self._lock:
            assert not self._is_closed, "staged files are deleted on close"
            assert not self._has_failed, "staged files may be committed after a failure"
            self._has_failed = True
            new = self._commit(pieces, may_lack)
            self._has_failed = False
            return new

    def _commit(self, pieces: Sequence[ArchivePiece], may_lack: bool) -> list[ArchivePiece]:
        topic_archive = self._topic_archive
        try:
            new = added(self.ends, pieces)
        except ValueError as error:
            raise _in_use(topic_archive, str(error)) from None
        for piece in new:
            if piece.is_lost and not may_lack:
                where = TopicPartition(topic_archive.topic, piece.partition)
                text = f"{where}: offsets {piece.start} to {piece.end - 1} are missing in the batch to archive"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if new:
            span = CommitSpan(number := self._spans[-1].last + 1 if self._spans else 0, number)
            self._store.keep(topic_archive.staged)
            try:
                self._store.create(f"{topic_archive.index}/{span.name}", encode(new))
            except FileExistsError:
                raise _in_use(topic_archive, f"commit {number} already exists") from None
            self._spans.append(span)
            self.ends |= {piece.partition: piece.end for piece in new}
            self._move(file for piece in new for file in piece.files)
            self._merge()
        for piece in set(pieces).difference(new):
            for file in piece.files:
                self._store.delete(topic_archive.staged_place(file))
        return new

    def _move(self, files: Iterable[StoredFile]) -> None:
        """Moves committed files from `staged` to `data`."""
        topic_archive = self._topic_archive
        changed: set[str] = set()
        for file in files:
            directory = topic_archive.place(file).rpartition("/")[0]
            if directory not in changed:
                self._store.make_directory(directory)
            self._store.move(topic_archive.staged_place(file), topic_archive.place(file))
            # The parent of a new directory must be flushed too, and may be new itself.
            changed |= {directory, directory.rpartition("/")[0], topic_archive.data}
        self._store.keep(*sorted(changed))

    def _merge(self) -> None:
        """Merges the last segments as long as they have the same length."""
        topic_archive = self._topic_archive
        while parts := due(self._spans):
            whole = CommitSpan(parts[0].first, parts[-1].last)
            data = merge(self._store.open_input(f"{topic_archive.index}/{span.name}") for span in parts)
            if data is None:
                break
            self._store.create(f"{topic_archive.index}/{whole.name}", data)
            self._spans[-len(parts) :] = [whole]
            for span in parts:
                self._store.delete(f"{topic_archive.index}/{span.name}")


def _in_use(topic_archive: TopicArchive, why: str) -> MillstreamError:
    text = f"another process writes the archive of {topic_archive.topic!r} in {topic_archive.path}: {why}"
    return MillstreamError(ErrorCode.DATA_DIRECTORY_IN_USE, text)


@contextmanager
def kept(topic_archive: TopicArchive) -> Iterator[ArchiveWriter]:
    """Opens an archive for writing, as its only writer on this disk.

    Raises DATA_DIRECTORY_IN_USE if there is another one.

    Only local file systems have a lock. On others, the caller must ensure that one process writes at a time.
    """
    if not topic_archive.store.is_local:
        yield ArchiveWriter(topic_archive)
        return
    descriptor = os.open(topic_archive.store.full(f"{topic_archive.home}/lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(topic_archive, "it holds the lock; stop it first") from None
        yield ArchiveWriter(topic_archive)
    finally:
        os.close(descriptor)


def topics_in(path: str) -> list[str]:
    """Returns the topics that have an archive under this path."""
    return store_of(path).directories(HOME)
