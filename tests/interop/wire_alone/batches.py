"""Encodes and decodes uncompressed record batches of version 2, with only `struct` and a checksum."""

import struct
import time
from typing import NamedTuple

from crc32c import crc32c

from interop.wire_alone.fields import Source, varint

_HEAD = struct.Struct(">qiibI")  # Base offset, length, leader epoch, magic, checksum of everything after it.
_BODY = struct.Struct(">hiqqqhii")  # Attributes, last delta, first and last time, producer, epoch, sequence, count.
ID_HEADER = b"millstream.id"


class Stored(NamedTuple):
    offset: int
    value: bytes
    message_id: bytes | None


def batch(*values: bytes, ids: list[bytes] | None = None, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """Encode a batch of these values; `producer` is its id, its epoch and the first sequence number."""
    return _batch([_record(delta, value, ids[delta] if ids else None) for delta, value in enumerate(values)], producer)


def tombstone(key: bytes) -> bytes:
    """Encode a batch of one record with this key and a null value."""
    content = b"\0" + _zigzag(0) + _zigzag(0) + _sized(key) + _zigzag(-1) + _zigzag(0)
    return _batch([_sized(content)], (-1, -1, -1))


def _batch(records: list[bytes], producer: tuple[int, int, int]) -> bytes:
    now_ms = int(time.time() * 1000)
    body = _BODY.pack(0, len(records) - 1, now_ms, now_ms, *producer, len(records)) + b"".join(records)
    # The length counts everything after itself: leader epoch, magic and checksum have 9 bytes.
    return _HEAD.pack(0, len(body) + 9, -1, 2, crc32c(body)) + body


def _record(delta: int, value: bytes, message_id: bytes | None) -> bytes:
    headers = _zigzag(0) if message_id is None else _zigzag(1) + _sized(ID_HEADER) + _sized(message_id)
    content = b"\0" + _zigzag(0) + _zigzag(delta) + _zigzag(-1) + _sized(value) + headers
    return _sized(content)


def _sized(data: bytes) -> bytes:
    return _zigzag(len(data)) + data


def _zigzag(number: int) -> bytes:
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def stored(data: bytes | None) -> list[Stored]:
    """Decode the records of whole batches, and assert their checksums."""
    found: list[Stored] = []
    source = Source(data or b"")
    while source.at < len(source.data):
        base_offset, length, _, magic, checksum = _HEAD.unpack(source.take(_HEAD.size))
        body = Source(source.take(length - 9))
        assert (magic, checksum) == (2, crc32c(body.data))
        *_, count = _BODY.unpack(body.take(_BODY.size))
        found += [_read(Source(body.take(body.zigzag())), base_offset) for _ in range(count)]
    return found


def _read(record: Source, base_offset: int) -> Stored:
    record.take(1)
    record.zigzag()
    offset = base_offset + record.zigzag()
    record.take(max(0, record.zigzag()))
    value = record.take(max(0, record.zigzag()))
    headers = {}
    for _ in range(record.zigzag()):
        name = record.take(record.zigzag())
        headers[name] = record.take(max(0, record.zigzag()))
    return Stored(offset, value, headers.get(ID_HEADER))
