"""Batches that a broker of this machine does not send, but tells the place of: they are read from its files.

What is read is what would have been sent: the same whole batches, in files that only grow. A file that is not the one
that was meant, that may not be opened or that has become shorter is no failure: the batches are asked for again, and
who misses several times in a row in one partition has them sent from then on. A file's number may be given to another
that gets its name too, so what is read must begin with the offset that is expected, and reach as far as was told. Files
are opened for one reading and closed behind it: one that was deleted takes no room on the disk longer than that.

A broker may tell any name. Only regular files are opened, nothing is waited for, and no more memory is taken than a
file of that size, and a batch that could have been sent, need.
"""

import os
from functools import partial
from stat import S_ISREG

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.model.names import TopicPartition
from millstream.records.batch import each_piece, size_at, whole_end
from millstream.records.header import HEADER_BYTES
from millstream.records.record_decoder import room
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.requests import INFO
from millstream.seams.file_part import FilePlace
from millstream.seams.workers import BackgroundJob, CompanionThread

MISSES_MAX = 3
MORE_BYTES = 1024 * 1024
"""So much more is read at once where a batch would be cut."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileMovedError(MillstreamError):
    """What is to be read lies elsewhere by now, or always did: ask again."""


class _AnotherError(Exception):
    """What lies there is something else than was told."""


class LocalFileReader:
    """What one broker's files are for a reader on this `machine`; with none, nothing."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._misses: dict[TopicPartition, int] = {}
        """How often in a row. Each partition's count for themselves: others may lie on a disk that can be seen."""

    def machine(self, connection: BrokerConnection) -> str:
        """What to tell the broker of it; "" to have everything sent."""
        return self._machine if connection.serves(INFO) else ""

    def read(
        self,
        where: TopicPartition,
        place: FilePlace,
        offset: int,
        end_offset: int,
        size_bytes: int,
        scratch: "ScratchBuffer | None" = None,
    ) -> tuple[memoryview, FilePlace | None]:
        """Whole batches that lie there, about so many bytes of them, and where the others lie. The first has `offset`,
        and with all the others they reach `end_offset`.

        With a `scratch` they are there until it is read into again, which is begun for the others.
        FileMovedError where they do not lie there, or cannot be had. Blocks.
        """
        try:
            found = _read(place, size_bytes, None) if scratch is None else scratch.read(place, size_bytes)
            position, end = place.position + len(found), place.position + place.size_bytes
            if not _is_meant(found, offset, end_offset if position == end else offset):
                raise _AnotherError(f"at byte {place.position} there is something else")
        except (OSError, UnicodeEncodeError, _AnotherError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise  # Not the system's, but of somebody's handler of a signal: as a rule a TimeoutError.
            self._missed(where)
            raise FileMovedError(ErrorCode.NETWORK_EXCEPTION, f"{place.path}: {error}") from error
        self._misses.pop(where, None)
        if position == end:
            return found, None
        rest = place._replace(position=position, size_bytes=end - position)
        if scratch is not None:
            scratch.begin(rest, size_bytes)
        return found, rest

    def _missed(self, where: TopicPartition) -> None:
        self._misses[where] = misses = self._misses.get(where, 0) + 1
        if misses >= MISSES_MAX:
            self._machine = ""


class ScratchBuffer:
    """Memory for one who reads, makes something of it at once and then reads on; in two halves, so that a thread reads
    what comes next into the one while its owner is at work on the other."""

    def __init__(self, size_bytes: int) -> None:
        """For readings of so many bytes."""
        self._half = room(size_bytes + MORE_BYTES)
        self._other = room(size_bytes + MORE_BYTES)
        self._beside: CompanionThread | None = None
        self._ahead: tuple[FilePlace, int, BackgroundJob[memoryview]] | None = None

    def read(self, place: FilePlace, size_bytes: int) -> memoryview:
        """As `_read`; what was read last is gone."""
        if self._ahead is not None:
            place_ahead, size_ahead, job = self._ahead
            job.join()  # Until then the other half is the thread's, also for who is interrupted here.
            self._ahead = None
            self._half, self._other = self._other, self._half
            if (place_ahead, size_ahead) == (place, size_bytes):
                return job.result()
        return _read(place, size_bytes, self._half)

    def begin(self, place: FilePlace, size_bytes: int) -> None:
        """Read there, as far as `read` will want it."""
        if self._beside is None:
            try:
                self._beside = CompanionThread("millstream-reader")
            except RuntimeError:  # There are no more threads to be had: `read` does it by itself.
                return
        self._ahead = place, size_bytes, self._beside.begin(partial(_read, place, size_bytes, self._other))


def _is_meant(found: memoryview, offset: int, end_offset: int) -> bool:
    """Whether of these whole batches the first has `offset`, and the last reaches `end_offset`."""
    first_offset, behind_first = (
        int.from_bytes(found[:8], "big", signed=True),
        next(each_piece(found, 0, 1)).next_offset,
    )
    if not first_offset <= offset < behind_first:
        return False
    return end_offset <= behind_first or end_offset <= next(each_piece(found, 0, len(found))).next_offset


def _read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
    fd = _open(place)
    try:
        room_bytes = min(size_bytes + MORE_BYTES, place.size_bytes)
        view = memoryview(room(room_bytes) if scratch is None else scratch)[:room_bytes]
        filled = min(size_bytes, len(view))
        _fill(fd, view[:filled], place.position)
        end = whole_end(view[:filled])
        size = size_at(view[:filled], end)
        if HEADER_BYTES <= size <= len(view) - end:
            _fill(fd, view[filled : end + size], place.position + filled)
            return view[: end + size]
        if end:
            return view[:end]
        if not HEADER_BYTES <= size <= min(place.size_bytes, REQUEST_BYTES_MAX):
            raise _AnotherError(f"at byte {place.position} there is no batch")
        view = memoryview(room(size))
        _fill(fd, view, place.position)
        return view
    finally:
        os.close(fd)


def _open(place: FilePlace) -> int:
    """Looked at before, since opening alone has effects on what is no file, and after, since names change."""
    if "\0" in place.path:
        raise _AnotherError("no file has such a name")
    _check(os.stat(place.path), place)
    fd = os.open(place.path, _FLAGS)
    try:
        _check(os.fstat(fd), place)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(file: os.stat_result, place: FilePlace) -> None:
    if (file.st_dev, file.st_ino) != (place.device, place.inode) or not S_ISREG(file.st_mode):
        raise _AnotherError("another file has its name")
    if place.position + place.size_bytes > file.st_size:
        raise _AnotherError(f"it ends at byte {file.st_size}")


def _fill(fd: int, view: memoryview, position: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], position + done)
        if not count:
            raise _AnotherError(f"it ends at byte {position + done}")
        done += count
