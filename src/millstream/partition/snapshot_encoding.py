"""How a partition's small state is packed into bytes that show damage and age.

Layout, big-endian: four bytes of kind, two of version, the payload, CRC-32C of all that. The payload is the kind's own
affair. To change a payload, raise its version and read the older one too, or refuse it: a snapshot only shortens the
replay of the log, so one that cannot be used costs time and nothing else.
"""

import struct

from millstream.records.checksum import crc32c

_HEAD = struct.Struct(">4sH")
_CHECKSUM = struct.Struct(">I")


class SnapshotError(ValueError):
    """The bytes are damaged, of another kind, or of a version that is not known here."""


def seal(kind: bytes, version: int, payload: bytes) -> bytes:
    packed = _HEAD.pack(kind, version) + payload
    return packed + _CHECKSUM.pack(crc32c(packed))


def unseal(kind: bytes, version: int, sealed: bytes) -> bytes:
    """The payload of a sealed snapshot; SnapshotError when it cannot be used."""
    if len(sealed) < _HEAD.size + _CHECKSUM.size:
        raise SnapshotError(f"a snapshot of {len(sealed)} bytes is too short")
    body, checksum = sealed[: -_CHECKSUM.size], sealed[-_CHECKSUM.size :]
    if crc32c(body) != _CHECKSUM.unpack(checksum)[0]:
        raise SnapshotError("the snapshot's checksum is wrong")
    found = _HEAD.unpack_from(body)
    if found != (kind, version):
        raise SnapshotError(f"the snapshot is {found[0]!r} version {found[1]}, not {kind!r} version {version}")
    return body[_HEAD.size :]
