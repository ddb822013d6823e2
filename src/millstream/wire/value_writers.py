"""Appends single encoded values to a bytearray."""

from uuid import UUID

from millstream.wire.frame_reader import INT16, INT32

STRING_BYTES_MAX = 32_767

_SMALL = [bytes([value]) for value in range(128)]


def unsigned_varint(value: int) -> bytes:
    """Encode `value` with seven bits per byte, lowest bits first."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_string(out: bytearray, value: str | None, compact: bool) -> None:
    if value is None:
        out += b"\0" if compact else b"\xff\xff"
        return
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes exceeds {STRING_BYTES_MAX} bytes")
    out += unsigned_varint(len(data) + 1) if compact else INT16.pack(len(data))
    out += data


def put_data(out: bytearray, value: bytes | bytearray | memoryview | None, compact: bool) -> None:
    if value is None:
        out += b"\0" if compact else b"\xff\xff\xff\xff"
        return
    out += unsigned_varint(len(value) + 1) if compact else INT32.pack(len(value))
    out += value


def put_count(out: bytearray, count: int, compact: bool) -> None:
    """Append the element count of an array. -1 stands for null."""
    out += unsigned_varint(count + 1) if compact else INT32.pack(count)


def put_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes
