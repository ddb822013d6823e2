"""Writes and reads small files with a checksum, which are replaced as a whole.

Layout, little-endian: 8 bytes kind, 4 bytes CRC-32C of everything after it, 8 bytes payload length, payload.

`write` creates `<path>.new`, flushes it, renames it over `path` and flushes the directory. A crash leaves the old or
the new file, never a mixture, and perhaps a `.new` file that recovery removes. A file of zeros is invalid, because no
kind consists of zeros.
"""

import os.path
import struct

from millstream.records.checksum import crc32c
from millstream.seams.disk import Disk

UNFINISHED = ".new"
_HEAD = struct.Struct("<8sIQ")
_CHECKED_FROM = 12


def seal(kind: bytes, payload: bytes) -> bytes:
    """Encode a sealed file."""
    assert len(kind) == 8
    length = struct.pack("<Q", len(payload))
    return kind + struct.pack("<I", crc32c(payload, crc32c(length))) + length + payload


def unseal(kind: bytes, data: bytes) -> bytes | None:
    """Return the payload, or None if the data is not a valid sealed file of this kind."""
    if len(data) < _HEAD.size:
        return None
    found, crc, length = _HEAD.unpack_from(data)
    if found != kind or length != len(data) - _HEAD.size or crc32c(memoryview(data)[_CHECKED_FROM:]) != crc:
        return None
    return data[_HEAD.size :]


def write(disk: Disk, path: str, kind: bytes, payload: bytes) -> None:
    """Replace the file at `path` durably. Raise OSError on failure; then the old file stays."""
    unfinished = path + UNFINISHED
    file = disk.open(unfinished, create=True)
    data = seal(kind, payload)
    file.truncate(0)
    file.write(data, 0)
    file.flush()
    file.close()
    disk.rename(unfinished, path)
    disk.flush_directory(os.path.dirname(path))


def leave(disk: Disk, path: str, kind: bytes, payload: bytes) -> None:
    """Replace the file without a flush, for data that must survive a crash of the process but not a power loss.

    Raise OSError.
    """
    unfinished = path + UNFINISHED
    file = disk.open(unfinished, create=True)
    file.truncate(0)
    file.write(seal(kind, payload), 0)
    file.close()
    disk.rename(unfinished, path)


def is_of_kind(disk: Disk, path: str, kind: bytes) -> bool:
    """Return True if the file at `path` begins with the magic of this kind, even if the rest is damaged."""
    file = disk.open(path)
    found = file.read(len(kind), position=0)
    file.close()
    return found == kind


def read(disk: Disk, path: str, kind: bytes) -> bytes | None:
    """Return the payload of the file at `path`, or None if the file is missing or invalid."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    data = file.read(file.size(), position=0)
    file.close()
    return unseal(kind, data)
