"""Saves state that was derived from a log in `<name>.snapshot`, so that a start replays only part of the log.

The file is a sealed file (see `sealed_file`). Its payload is an offset (8 bytes, little-endian) and the state of the
log below that offset. A crash leaves this snapshot or the previous one. Snapshots are never authoritative. A damaged
snapshot is ignored, as is a snapshot of offsets that the log no longer has. The state is then rebuilt from the batches.
"""

import struct
from typing import TYPE_CHECKING

from millstream.seams.disk import Disk
from millstream.storage import sealed_file

if TYPE_CHECKING:
    from millstream.storage.log.log import Log

SUFFIX = ".snapshot"
KIND = b"MSTRMSN1"
START = "start"
"""The name of a snapshot without state. The log starts at its offset, even if an older checkpoint differs."""
_OFFSET = struct.Struct("<q")


def save_state(log: "Log", name: str, offset: int, payload: bytes) -> None:
    """Write the state of a log below `offset` durably. Blocking. Raise OSError."""
    save(log.files.disk, log.path, name, offset, payload)


def load_state(log: "Log", name: str) -> tuple[int, bytes] | None:
    """Return (offset, payload), or None if there is no valid snapshot of offsets that the log has. Blocking."""
    found = load(log.files.disk, log.path, name)
    return found if found is not None and found[0] <= log.end_offset else None


def save(disk: Disk, directory: str, name: str, offset: int, payload: bytes) -> None:
    """Write a snapshot durably. Raise OSError."""
    sealed_file.write(disk, f"{directory}/{name}{SUFFIX}", KIND, _OFFSET.pack(offset) + payload)


def load(disk: Disk, directory: str, name: str) -> tuple[int, bytes] | None:
    """Return (offset, payload), or None if there is no valid snapshot."""
    data = sealed_file.read(disk, f"{directory}/{name}{SUFFIX}", KIND)
    if data is None or len(data) < _OFFSET.size:
        return None
    return _OFFSET.unpack_from(data)[0], data[_OFFSET.size :]
