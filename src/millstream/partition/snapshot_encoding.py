"""Packs a snapshot with its kind, version and checksum, so that damaged and outdated snapshots are detected.

Layout, big-endian: kind (4 bytes), version (2), payload, CRC-32C of everything before it. The kind defines the payload.
To change a payload, raise its version, and either read or refuse the older version. A snapshot only shortens the replay
of the log, so a refused one costs nothing but time.
"""

import struct

from millstream.records.checksum import crc32c

_HEAD = struct.Struct(">4sH")
_CHECKSUM = struct.Struct(">I")


class SnapshotError(ValueError):
    """The snapshot is damaged, of another kind, or of an unknown version."""


def seal(kind: bytes, version: int, payload: bytes) -> bytes:
    packed = _HEAD.pack(kind, version) + payload
    return packed + _CHECKSUM.pack(crc32c(packed))


def unseal(kind: bytes, version: int, sealed: bytes) -> bytes:
    """Return the payload of a sealed snapshot. Raises SnapshotError if it cannot be used."""
    if len(sealed) < _HEAD.size + _CHECKSUM.size:
        raise SnapshotError(f"a snapshot of {len(sealed)} bytes is too short")
    body, checksum = sealed[: -_CHECKSUM.size], sealed[-_CHECKSUM.size :]
    if crc32c(body) != _CHECKSUM.unpack(checksum)[0]:
        raise SnapshotError("the snapshot's checksum is wrong")
    found = _HEAD.unpack_from(body)
    if found != (kind, version):
        raise SnapshotError(f"the snapshot is {found[0]!r} version {found[1]}, not {kind!r} version {version}")
    return body[_HEAD.size :]
