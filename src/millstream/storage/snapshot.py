"""State derived from a log, kept beside it so that not all of the log has to be read again: `<name>.snapshot`.

A sealed file (see `sealed_file`): the payload is the offset (8 bytes, little-endian) up to which the log is reflected
in the state, then the state. A crash leaves the last one or the one before. A snapshot is a help, never the authority:
what is damaged or speaks of offsets the log no longer has is not used, and the state is made from the batches instead.
"""

import struct

from millstream.seams.disk import Disk
from millstream.storage import sealed_file

SUFFIX = ".snapshot"
KIND = b"MSTRMSN1"
START = "start"
"""The name of one without a state: the log starts at its offset, whatever an older checkpoint says."""
_OFFSET = struct.Struct("<q")


def save(disk: Disk, directory: str, name: str, offset: int, payload: bytes) -> None:
    """Write it durably; raises OSError."""
    sealed_file.write(disk, f"{directory}/{name}{SUFFIX}", KIND, _OFFSET.pack(offset) + payload)


def load(disk: Disk, directory: str, name: str) -> tuple[int, bytes] | None:
    """(offset, payload), or None when there is no whole one."""
    data = sealed_file.read(disk, f"{directory}/{name}{SUFFIX}", KIND)
    if data is None or len(data) < _OFFSET.size:
        return None
    return _OFFSET.unpack_from(data)[0], data[_OFFSET.size :]
