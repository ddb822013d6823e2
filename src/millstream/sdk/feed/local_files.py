"""Reads batches from the files of a broker on the same machine, which sends file positions instead of the batches.

The files hold the same whole batches that the broker would send, and they only grow.

- If a file is not the expected one, cannot be opened or is too short, the batches are fetched again. After several
  such misses in a row in one partition, the client asks the broker to send batches over the network from then on.
- A new file may reuse the inode number and the name of a deleted one. So the bytes read must begin with the batch of
  the expected offset and reach the announced end.
- A file is opened for one read and closed after it, so that a deleted file does not occupy the disk for longer.

The broker's answer is not trusted. Only regular files are opened, without blocking. A read allocates at most the file's
size, and at most the size of a batch that the broker could have sent.
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
"""Extra buffer space, so that a read can complete its last batch."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileMovedError(MillstreamError):
    """The file does not hold the batches that the broker announced; they must be fetched again."""


class _MismatchError(Exception):
    """The file's content differs from what the broker announced."""


class LocalFileReader:
    """Reads the files of one broker for a client on this `machine`; an empty machine id disables local file reads."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._misses: dict[TopicPartition, int] = {}
        """Misses in a row, per partition: partitions may be on different disks, of which only some are accessible."""

    def machine(self, connection: BrokerConnection) -> str:
        """Return the machine id for a fetch request; "" makes the broker send batches over the network."""
        return self._machine if connection.serves(INFO) else ""

    def read(
        self,
        where: TopicPartition,
        place: FilePlace,
        *,
        offset: int,
        end_offset: int,
        size_bytes: int,
        scratch: "ScratchBuffer | None" = None,
    ) -> tuple[memoryview, FilePlace | None]:
        """Read about `size_bytes` of whole batches; return them and the position of the rest. Blocks.

        The first batch must contain `offset`; all batches together must reach `end_offset`. With a `scratch` buffer
        the returned bytes are valid until its next read, and reading the rest begins in the background.
        Raises FileMovedError if the file does not hold these batches or cannot be read.
        """
        try:
            found = _read(place, size_bytes, None) if scratch is None else scratch.read(place, size_bytes)
            position, end = place.position + len(found), place.position + place.size_bytes
            if not _has_offsets(found, offset=offset, end_offset=end_offset if position == end else offset):
                raise _MismatchError(f"the batches at byte {place.position} do not hold the announced offsets")
        except (OSError, UnicodeEncodeError, _MismatchError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise  # Not from the system but from a signal handler, such as a TimeoutError.
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
    """A double buffer for reads whose bytes are processed before the next read.

    A thread reads ahead into one half while the owner processes the other.
    """

    def __init__(self, size_bytes: int) -> None:
        """Allocate both halves for reads of `size_bytes`."""
        self._half = room(size_bytes + MORE_BYTES)
        self._other = room(size_bytes + MORE_BYTES)
        self._thread: CompanionThread | None = None
        self._ahead: tuple[FilePlace, int, BackgroundJob[memoryview]] | None = None

    def read(self, place: FilePlace, size_bytes: int) -> memoryview:
        """Read like `_read`; the bytes of the previous read become invalid."""
        if self._ahead is not None:
            place_ahead, size_ahead, job = self._ahead
            job.join()  # The thread uses the other half until then. If `join` is interrupted, `_ahead` stays set.
            self._ahead = None
            self._half, self._other = self._other, self._half
            if (place_ahead, size_ahead) == (place, size_bytes):
                return job.result()
        return _read(place, size_bytes, self._half)

    def begin(self, place: FilePlace, size_bytes: int) -> None:
        """Start to read ahead in the background what the next `read` will need."""
        if self._thread is None:
            try:
                self._thread = CompanionThread("millstream-reader")
            except RuntimeError:  # No thread can be started; `read` then reads in the caller's thread.
                return
        self._ahead = place, size_bytes, self._thread.begin(partial(_read, place, size_bytes, self._other))


def _has_offsets(found: memoryview, *, offset: int, end_offset: int) -> bool:
    """True if the first of these whole batches contains `offset` and the last reaches `end_offset`."""
    first_offset, behind_first = (
        int.from_bytes(found[:8], "big", signed=True),
        next(each_piece(found, 0, size_bytes=1)).next_offset,
    )
    if not first_offset <= offset < behind_first:
        return False
    return end_offset <= behind_first or end_offset <= next(each_piece(found, 0, size_bytes=len(found))).next_offset


def _read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
    opened: list[int] = []
    try:
        fd = _open(place, opened)
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
            raise _MismatchError(f"there is no batch at byte {place.position}")
        view = memoryview(room(size))
        _fill(fd, view, place.position)
        return view
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _open(place: FilePlace, opened: list[int]) -> int:
    """Open the file and add its descriptor to `opened`, from which the caller closes it.

    The file is checked before, since opening a device has side effects, and after, since it may be replaced in between.
    """
    if "\0" in place.path:
        raise _MismatchError("the path contains a null byte")
    _check(os.stat(place.path), place)
    # One call opens and adds. A signal handler that raises after it cannot lose the descriptor.
    opened.extend(map(os.open, (place.path,), (_FLAGS,)))
    _check(os.fstat(opened[0]), place)
    return opened[0]


def _check(file: os.stat_result, place: FilePlace) -> None:
    if (file.st_dev, file.st_ino) != (place.device, place.inode) or not S_ISREG(file.st_mode):
        raise _MismatchError("another file has this name")
    if place.position + place.size_bytes > file.st_size:
        raise _MismatchError(f"the file ends at byte {file.st_size}")


def _fill(fd: int, view: memoryview, position: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], position + done)
        if not count:
            raise _MismatchError(f"the file ends at byte {position + done}")
        done += count
