"""Writing single values onto the end of a bytearray."""

from uuid import UUID

from millstream.wire.frame_reader import INT16, INT32

STRING_BYTES_MAX = 32_767

_SMALL = [bytes([value]) for value in range(128)]


def unsigned_varint(value: int) -> bytes:
    """`value` in seven bits a byte, the lowest first."""
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
        raise ValueError(f"a text of {len(data)} bytes does not fit into a message")
    out += unsigned_varint(len(data) + 1) if compact else INT16.pack(len(data))
    out += data


def put_data(out: bytearray, value: bytes | bytearray | memoryview | None, compact: bool) -> None:
    if value is None:
        out += b"\0" if compact else b"\xff\xff\xff\xff"
        return
    out += unsigned_varint(len(value) + 1) if compact else INT32.pack(len(value))
    out += value


def put_count(out: bytearray, count: int, compact: bool) -> None:
    """The number of elements of an array; -1 for null."""
    out += unsigned_varint(count + 1) if compact else INT32.pack(count)


def put_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes
