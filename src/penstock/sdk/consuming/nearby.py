"""Batches that a broker of this machine does not send, but tells the place of: they are read from its files.

What is read is what would have been sent: the same whole batches, in files that only grow. A file that is not the one
that was meant, that may not be opened or that has become shorter is no failure: the batches are asked for again, and
who misses several times in a row has them sent from then on. Files are opened for one reading and closed behind it: one
that was deleted takes no room on the disk longer than that.
"""

import os

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.file_part import FilePlace
from penstock.records._decode import room
from penstock.records.batch import size_at, whole_end
from penstock.sdk.connection import Connection
from penstock.sdk.requests import INFO

MISSES_MAX = 3
MORE_BYTES = 1024 * 1024
"""So much more is read at once where a batch would be cut."""


class NotThereError(PenstockError):
    """What is to be read lies elsewhere by now, or always did: ask again."""


class Nearby:
    """What one broker's files are for a reader on this `machine`; with none, nothing."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._misses = 0

    def machine(self, connection: Connection) -> str:
        """What to tell the broker of it; "" to have everything sent."""
        return self._machine if self._misses < MISSES_MAX and connection.serves(INFO) else ""

    def read(
        self, place: FilePlace, size_bytes: int, scratch: bytearray | None = None
    ) -> tuple[memoryview, FilePlace | None]:
        """Whole batches that lie there, about so many bytes of them, and where the others lie.

        `scratch` is memory of `size_bytes` and `MORE_BYTES` for them, which spares making some.
        NotThereError where they do not lie there, or cannot be had. Blocks.
        """
        try:
            found = _read(place, size_bytes, scratch)
        except OSError as error:
            self._misses += 1
            raise NotThereError(ErrorCode.NETWORK_EXCEPTION, f"{place.path}: {error}") from error
        self._misses = 0
        end = place.position + place.size_bytes
        position = place.position + len(found)
        return found, place._replace(position=position, size_bytes=end - position) if position < end else None


def _read(place: FilePlace, size_bytes: int, scratch: bytearray | None) -> memoryview:
    fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file = os.fstat(fd)
        if (file.st_dev, file.st_ino) != (place.device, place.inode):
            raise FileNotFoundError("another file has its name")
        room_bytes = min(size_bytes + MORE_BYTES, place.size_bytes)
        view = memoryview(room(room_bytes) if scratch is None else scratch)[:room_bytes]
        filled = min(size_bytes, len(view))
        _fill(fd, view[:filled], place.position)
        end = whole_end(view[:filled])
        if end == len(view):
            return view
        following = end + size_at(view[:filled], end)
        if end < following <= len(view):
            _fill(fd, view[filled:following], place.position + filled)
            return view[:following]
        if end:
            return view[:end]
        view = memoryview(room(following if 0 < following < place.size_bytes else place.size_bytes))
        _fill(fd, view, place.position)  # One that is large, or what is no batch: who opens it finds out.
        return view
    finally:
        os.close(fd)


def _fill(fd: int, view: memoryview, position: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], position + done)
        if not count:
            raise OSError(f"it ends at byte {position + done}")
        done += count
