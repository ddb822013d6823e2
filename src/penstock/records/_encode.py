"""Writes records into an uncompressed batch body; see `penstock.records` for the format.

One source, two lives, as in `_decode`. The caller (`batch`) has checked the arguments; what remains to be checked
here is what shows only record by record: that keys and values are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from penstock.records import _uncompiled as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED = cython.compiled

_FIELDS_BYTES_MAX: cython.Py_ssize_t = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Room for everything of a record but its key, its value and its headers."""

_HEADER_FIELDS_BYTES_MAX: cython.Py_ssize_t = 5 + 5
_COUNT_BYTES_MAX: cython.Py_ssize_t = 5
_NO_HEADERS = b"\x00"


@cython.cfunc
@cython.inline
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
    size: cython.Py_ssize_t = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


@cython.final
@cython.cclass
class Writer:
    """Fills a buffer that was made large enough beforehand."""

    _buffer: bytearray
    _room: cython.uchar[::1]
    _position: cython.Py_ssize_t

    def __init__(self, buffer: bytearray, position: cython.Py_ssize_t) -> None:
        self._buffer = buffer
        self._room = buffer
        self._position = position

    @cython.cfunc
    def written(self) -> bytearray:
        """The buffer, cut where the writing ended; nothing can be written after that."""
        self._room = None
        del self._buffer[self._position :]
        return self._buffer

    @cython.cfunc
    @cython.inline
    def varint(self, value: cython.longlong) -> cython.void:
        zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
        while zigzag >= 0x80:
            self._room[self._position] = (zigzag & 0x7F) | 0x80
            self._position += 1
            zigzag >>= 7
        self._room[self._position] = zigzag
        self._position += 1

    @cython.cfunc
    @cython.inline
    def byte(self, value: cython.uchar) -> cython.void:
        self._room[self._position] = value
        self._position += 1

    @cython.cfunc
    @cython.inline
    def raw(self, data: bytes, size: cython.Py_ssize_t) -> cython.void:
        if size:
            if size > len(self._room) - self._position:
                raise AssertionError("the room for a batch was measured too small")
            if cython.compiled:
                memcpy(cython.address(self._room[self._position]), cython.cast(cython.p_char, data), size)
            else:
                self._room[self._position : self._position + size] = data
            self._position += size

    @cython.cfunc
    @cython.inline
    def blob(self, data: bytes | None) -> cython.void:
        """Length and bytes; -1 for null."""
        if data is None:
            self.byte(1)
        else:
            self.varint(len(data))
            self.raw(data, len(data))

    @cython.cfunc
    def record(
        self,
        timestamp_delta: cython.longlong,
        offset_delta: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
    ) -> cython.void:
        length: cython.Py_ssize_t = (
            1
            + _varint_size(timestamp_delta)
            + _varint_size(offset_delta)
            + _blob_size(key)
            + _blob_size(value)
            + len(headers)
        )
        self.varint(length)
        self.byte(0)
        self.varint(timestamp_delta)
        self.varint(offset_delta)
        self.blob(key)
        self.blob(value)
        self.raw(headers, len(headers))


@cython.cfunc
@cython.inline
def _blob_size(data: bytes | None) -> cython.Py_ssize_t:
    if data is None:
        return 1
    return _varint_size(len(data)) + len(data)


@cython.cfunc
def _measure(items: list) -> cython.Py_ssize_t:
    """Bytes of all items; TypeError unless each is bytes or None."""
    total: cython.Py_ssize_t = 0
    for item in items:
        if item is not None:
            if not isinstance(item, bytes):
                raise TypeError(f"keys and values are bytes or None, not {type(item).__name__}")
            total += len(item)
    return total


@cython.cfunc
def _encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The header section of one record, its count included."""
    encoded: list = []
    size: cython.Py_ssize_t = _COUNT_BYTES_MAX
    for key, value in headers:
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"a header's value is bytes or None, not {type(value).__name__}")
        name = key.encode("utf-8")
        encoded.append((name, value))
        size += _HEADER_FIELDS_BYTES_MAX + len(name) + (0 if value is None else len(value))
    writer: Writer = Writer(bytearray(size), 0)
    writer.varint(len(encoded))
    for name, value in encoded:
        writer.blob(name)
        writer.blob(value)
    return bytes(writer.written())


def encode_records(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: Sequence[Iterable[tuple[str, bytes | None]] | None] | None,
    timestamps: list[int] | None,
    base_timestamp: cython.longlong,
    offset_deltas: list[int] | None,
    prefix_bytes: cython.Py_ssize_t,
) -> bytearray:
    """A buffer with `prefix_bytes` left free and the records after it; every list is as long as `values`.

    Without `timestamps` all records have the base's; without `offset_deltas` they count from 0.
    """
    count: cython.Py_ssize_t = len(values)
    size: cython.Py_ssize_t = prefix_bytes + count * _FIELDS_BYTES_MAX + _measure(values)
    index: cython.Py_ssize_t
    timestamp: cython.longlong
    sections: list | None = None
    if keys is not None:
        size += _measure(keys)
    if headers is not None:
        sections = [_encode_headers(each) if each else _NO_HEADERS for each in headers]
        size += _measure(sections)
    writer: Writer = Writer(bytearray(size), prefix_bytes)
    for index in range(count):
        timestamp = base_timestamp if timestamps is None else timestamps[index]
        writer.record(
            timestamp - base_timestamp,
            index if offset_deltas is None else offset_deltas[index],
            None if keys is None else keys[index],
            values[index],
            _NO_HEADERS if sections is None else sections[index],
        )
    return writer.written()
