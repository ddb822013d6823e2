"""Writes records into an uncompressed batch body; see `penstock.records` for the format.

One source, two lives, and C functions that give 0, as in `_decode`. The caller (`batch`, `arrow`) has checked the
arguments; what remains to be checked here is what shows only record by record: that keys and values are bytes.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

from collections.abc import Iterable, Sequence

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from penstock.records import _uncompiled as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

Bytes = bytes | bytearray | memoryview

COMPILED = cython.compiled

# Room for everything of a record but its key, its value and its headers; the same for a header, and for their count.
FIELDS_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5 + 1 + 10 + 5 + 5 + 5 + 5)
HEADER_FIELDS_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5 + 5)
COUNT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5)

NULL = cython.declare(cython.uchar, 1)  # -1 as a varint.
NO_HEADERS = cython.declare(bytes, b"\x00")


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
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
    @cython.exceptval(-1, check=False)
    def varint(self, value: cython.longlong) -> cython.int:
        zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
        while zigzag >= 0x80:
            self._room[self._position] = (zigzag & 0x7F) | 0x80
            self._position += 1
            zigzag >>= 7
        self._room[self._position] = zigzag
        self._position += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def byte(self, value: cython.uchar) -> cython.int:
        self._room[self._position] = value
        self._position += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def raw(self, data: bytes, size: cython.Py_ssize_t) -> cython.int:
        if size:
            self._need(size)
            if cython.compiled:
                memcpy(cython.address(self._room[self._position]), cython.cast(cython.p_char, data), size)
            else:
                self._room[self._position : self._position + size] = data
            self._position += size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def row(self, source: Source, row: cython.Py_ssize_t) -> cython.int:
        """A row of an Arrow column, as `blob`."""
        size: cython.Py_ssize_t = source.size(row)
        start: cython.Py_ssize_t = source.start(row)
        self.varint(size)
        if size > 0:
            self._need(size)
            if cython.compiled:
                memcpy(cython.address(self._room[self._position]), cython.address(source._data[start]), size)
            else:
                self._room[self._position : self._position + size] = source._data[start : start + size]
            self._position += size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _need(self, size: cython.Py_ssize_t) -> cython.int:
        if size > len(self._room) - self._position:
            raise AssertionError("the room for a batch was measured too small")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def blob(self, data: bytes | None) -> cython.int:
        """Length and bytes; -1 for null."""
        if data is None:
            self.byte(NULL)
        else:
            self.varint(len(data))
            self.raw(data, len(data))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def record(
        self,
        timestamp_delta: cython.longlong,
        offset_delta: cython.longlong,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
    ) -> cython.int:
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
@cython.exceptval(-2, check=True)
def _blob_size(data: bytes | None) -> cython.Py_ssize_t:
    if data is None:
        return 1
    return _varint_size(len(data)) + len(data)


@cython.cfunc
@cython.exceptval(-2, check=True)
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
    size: cython.Py_ssize_t = COUNT_BYTES_MAX
    for key, value in headers:
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"a header's value is bytes or None, not {type(value).__name__}")
        name = key.encode("utf-8")
        encoded.append((name, value))
        size += HEADER_FIELDS_BYTES_MAX + len(name) + (0 if value is None else len(value))
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
    size: cython.Py_ssize_t = prefix_bytes + count * FIELDS_BYTES_MAX + _measure(values)
    index: cython.Py_ssize_t
    timestamp: cython.longlong
    sections: list | None = None
    if keys is not None:
        size += _measure(keys)
    if headers is not None:
        sections = [_encode_headers(each) if each else NO_HEADERS for each in headers]
        size += _measure(sections)
    writer: Writer = Writer(bytearray(size), prefix_bytes)
    for index in range(count):
        timestamp = base_timestamp if timestamps is None else timestamps[index]
        writer.record(
            timestamp - base_timestamp,
            index if offset_deltas is None else offset_deltas[index],
            None if keys is None else keys[index],
            values[index],
            NO_HEADERS if sections is None else sections[index],
        )
    return writer.written()


@cython.final
@cython.cclass
class Source:
    """A column of bytes, or of lists, as Arrow keeps it: row r has what lies between offsets r and r + 1.

    `first` is the row of the buffers at which the column begins. A list's rows lead into other columns; it has no data
    of its own, and `limit` is how long those are.
    """

    _offsets: cython.const[cython.longlong][::1]
    _validity: cython.const[cython.uchar][::1]
    _all_valid: cython.bint
    _first: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _data: cython.const[cython.uchar][::1]

    def __init__(
        self, offsets: Bytes, validity: Bytes | None, first: cython.Py_ssize_t, limit: cython.Py_ssize_t, data: Bytes
    ) -> None:
        self._offsets = offsets
        self._validity = b"" if validity is None else validity
        self._all_valid = validity is None
        self._first = first
        self._limit = limit
        self._data = data

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=True)
    def start(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self._offsets[self._first + row]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=True)
    def size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """How much the row has, which is there; -1 for null."""
        index: cython.Py_ssize_t = self._first + row
        if not self._all_valid and not (self._validity[index >> 3] >> (index & 7)) & 1:
            return -1
        if not 0 <= self._offsets[index] <= self._offsets[index + 1] <= self._limit:
            raise ValueError("an Arrow column's offsets lead out of its data")
        return self._offsets[index + 1] - self._offsets[index]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=True)
    def encoded_size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Bytes of the row in a record, its length included."""
        size: cython.Py_ssize_t = self.size(row)
        return 1 if size < 0 else _varint_size(size) + size


@cython.final
@cython.cclass
class TableEncoder:
    """Writes rows of Arrow columns as records; keys, headers and timestamps may be missing."""

    _values: Source
    _keys: Source | None
    _headers: Source | None
    _header_keys: Source
    _header_values: Source
    _timestamps: cython.const[cython.longlong][::1]

    def __init__(
        self,
        values: Source,
        keys: Source | None,
        headers: tuple[Source, Source, Source] | None,
        timestamps: Bytes,
    ) -> None:
        self._values = values
        self._keys = keys
        # Without headers, any column does in place of theirs: it is never looked at.
        self._headers = None if headers is None else headers[0]
        self._header_keys = values if headers is None else headers[1]
        self._header_values = values if headers is None else headers[2]
        self._timestamps = timestamps

    def timestamp(self, row: cython.Py_ssize_t) -> int:
        return self._timestamps[row]

    def fit(
        self, first: cython.Py_ssize_t, rows: cython.Py_ssize_t, limit_bytes: cython.Py_ssize_t
    ) -> tuple[int, int, int, int]:
        """How many rows from `first` on surely fit into `limit_bytes`, at least one, however large it is.

        With the room they need, their smallest and their largest time.
        """
        size: cython.Py_ssize_t = 0
        more: cython.Py_ssize_t
        row: cython.Py_ssize_t
        lowest: cython.longlong = self._timestamps[first]
        highest: cython.longlong = lowest
        timestamp: cython.longlong
        for row in range(first, rows):
            more = FIELDS_BYTES_MAX + self._body_size(row)
            if row > first and size + more > limit_bytes:
                return row - first, size, lowest, highest
            size += more
            timestamp = self._timestamps[row]
            lowest = min(lowest, timestamp)
            highest = max(highest, timestamp)
        return rows - first, size, lowest, highest

    def encode(
        self,
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        prefix_bytes: cython.Py_ssize_t,
    ) -> bytearray:
        """A buffer with `prefix_bytes` left free and, in the `size` that `fit` gave, the rows; their times count from
        the first one's."""
        base_timestamp: cython.longlong = self._timestamps[first]
        row: cython.Py_ssize_t
        delta: cython.longlong
        writer: Writer = Writer(bytearray(prefix_bytes + size), prefix_bytes)
        for row in range(first, first + count):
            delta = self._timestamps[row] - base_timestamp
            writer.varint(1 + _varint_size(delta) + _varint_size(row - first) + self._body_size(row))
            writer.byte(0)
            writer.varint(delta)
            writer.varint(row - first)
            self._write_body(writer, row)
        return writer.written()

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _body_size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Bytes of key, value and headers."""
        size: cython.Py_ssize_t = self._values.encoded_size(row)
        size += 1 if self._keys is None else self._keys.encoded_size(row)
        return size + (1 if self._headers is None else self._headers_size(self._headers, row))

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _headers_size(self, headers: Source, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        count: cython.Py_ssize_t = max(headers.size(row), 0)
        size: cython.Py_ssize_t = _varint_size(count)
        header: cython.Py_ssize_t
        for header in range(headers.start(row), headers.start(row) + count):
            if self._header_keys.size(header) < 0:
                raise ValueError("a header's key is null")
            size += self._header_keys.encoded_size(header) + self._header_values.encoded_size(header)
        return size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_body(self, writer: Writer, row: cython.Py_ssize_t) -> cython.int:
        if self._keys is None:
            writer.byte(NULL)
        else:
            writer.row(self._keys, row)
        writer.row(self._values, row)
        if self._headers is None:
            writer.byte(0)
        else:
            self._write_headers(writer, self._headers, row)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_headers(self, writer: Writer, headers: Source, row: cython.Py_ssize_t) -> cython.int:
        count: cython.Py_ssize_t = max(headers.size(row), 0)
        header: cython.Py_ssize_t
        writer.varint(count)
        for header in range(headers.start(row), headers.start(row) + count):
            writer.row(self._header_keys, header)
            writer.row(self._header_values, header)
