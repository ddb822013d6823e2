"""Small files that are written whole and are either right or worth nothing.

Layout, little-endian: 8 bytes kind, 4 bytes CRC-32C of everything after it, 8 bytes payload length, payload.

`write` makes `<path>.new`, flushes it, renames it over `path` and flushes the directory: a crash leaves the old file
or the new one, never a mixture, and perhaps a `.new` file that recovery removes. Zeros do not pass, since no kind is
zeros.
"""

import os.path
import struct

from millstream.records.checksum import crc32c
from millstream.seams.disk import Disk

UNFINISHED = ".new"
_HEAD = struct.Struct("<8sIQ")
_CHECKED_FROM = 12


def seal(kind: bytes, payload: bytes) -> bytes:
    """The bytes of a sealed file."""
    assert len(kind) == 8
    length = struct.pack("<Q", len(payload))
    return kind + struct.pack("<I", crc32c(payload, crc32c(length))) + length + payload


def unseal(kind: bytes, data: bytes) -> bytes | None:
    """The payload, or None when these are not the bytes that `seal` made for this kind."""
    if len(data) < _HEAD.size:
        return None
    found, crc, length = _HEAD.unpack_from(data)
    if found != kind or length != len(data) - _HEAD.size or crc32c(memoryview(data)[_CHECKED_FROM:]) != crc:
        return None
    return data[_HEAD.size :]


def write(disk: Disk, path: str, kind: bytes, payload: bytes) -> None:
    """Replace the file at `path`, durably; raises OSError and then leaves the old one."""
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
    """As `write`, but flushed by nobody: for what has to outlive this process only. Raises OSError."""
    unfinished = path + UNFINISHED
    file = disk.open(unfinished, create=True)
    file.truncate(0)
    file.write(seal(kind, payload), 0)
    file.close()
    disk.rename(unfinished, path)


def is_of_kind(disk: Disk, path: str, kind: bytes) -> bool:
    """True when the file at `path` begins with the magic of this kind, damaged or not."""
    file = disk.open(path)
    found = file.read(len(kind), 0)
    file.close()
    return found == kind


def read(disk: Disk, path: str, kind: bytes) -> bytes | None:
    """The payload at `path`; None when there is no such file or it is not a whole one of this kind."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    data = file.read(file.size(), 0)
    file.close()
    return unseal(kind, data)
