"""Encodes records into an uncompressed batch body; see `millstream.records` for the format.

The source runs compiled or as plain Python, and C functions return 0, as in `record_decoder`. The callers (`batch`,
`arrow`) have checked the arguments. What remains is checked per record: keys and values must be bytes.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

from collections.abc import Iterable, Sequence

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
    from cython.cimports.libc.string import memcpy

Bytes = bytes | bytearray | memoryview

COMPILED = cython.compiled

INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

# The maximum size of a record without key, value and headers, and of a header without its key and value.
FIELDS_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5 + 1 + 10 + 5 + 5 + 5 + 5)
HEADER_FIELDS_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5 + 5)
LENGTH_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5)

NULL = cython.declare(cython.uchar, 1)  # -1 as a varint.

NO_ROWS = memoryview(b"").cast("q")


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


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(out: cython.p_uchar, position: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write a number, and return the position after it. The caller guarantees that there is space.

    The codec has varints of its own. Those of `wire` are unsigned and return bytes; here a varint is a zigzag number,
    and C code writes it in place. A loop over columns keeps the position in a local variable and calls this function;
    `varint` of the writer keeps the position for calls from several functions.
    """
    zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        out[position] = (zigzag & 0x7F) | 0x80
        position += 1
        zigzag >>= 7
    out[position] = zigzag
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _record_size(
    timestamp_delta: cython.longlong, offset_delta: cython.longlong, body_size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The size of a record after its length; `body_size` is the size of key, value and headers."""
    return 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + body_size


@cython.cfunc
def _again(used: bytearray, size: cython.Py_ssize_t) -> bytearray:
    """Return a buffer of this size, which is `used` unless it is still referenced. Old content may remain in it."""
    try:
        used.append(0)  # This fails while a memory view of the buffer exists.
    except BufferError:
        return bytearray(size)
    if cython.compiled:
        PyByteArray_Resize(used, size)
    elif len(used) < size:
        used.extend(bytes(size - len(used)))
    else:
        del used[size:]
    return used


@cython.final
@cython.cclass
class RecordWriter:
    """Fills a buffer of its own.

    Before writing a record, the caller calls `need` with the maximum size, and must keep to it. The writes themselves
    use a bare pointer when compiled, and are not checked.
    """

    _buffer: bytearray
    _room: cython.p_uchar
    _size: cython.Py_ssize_t
    _position: cython.Py_ssize_t

    def __init__(self, size: cython.Py_ssize_t, position: cython.Py_ssize_t, used: bytearray | None) -> None:
        """`used` is a buffer that is no longer needed. Reusing it avoids touching new memory."""
        self._buffer = bytearray(size) if used is None else _again(used, size)
        if cython.compiled:
            self._room = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._buffer))
        else:
            self._room = self._buffer
        self._size = size
        self._position = position

    @cython.cfunc
    def written(self) -> bytearray:
        """Return the buffer, truncated at the current position. Nothing can be written afterwards."""
        self._size = 0
        del self._buffer[self._position :]
        return self._buffer

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def need(self, size: cython.Py_ssize_t) -> cython.int:
        if size > self._size - self._position:
            self._too_small()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _too_small(self) -> cython.int:
        raise AssertionError("the buffer for an encoded batch is smaller than the batch")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def varint(self, value: cython.longlong) -> cython.int:
        self._position = _put_varint(self._room, self._position, value)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def byte(self, value: cython.uchar) -> cython.int:
        self._room[self._position] = value
        self._position += 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def blob(self, data: bytes | None) -> cython.int:
        """Write the length and the bytes; null has the length -1."""
        size: cython.Py_ssize_t
        if data is None:
            return self.byte(NULL)
        size = len(data)
        self.varint(size)
        if cython.compiled:
            memcpy(self._room + self._position, cython.cast(cython.p_char, data), size)
        else:
            self._room[self._position : self._position + size] = data
        self._position += size
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, size: cython.Py_ssize_t) -> cython.int:
        """Enlarge the buffer by at least `size` bytes."""
        self._buffer.extend(bytes(size + len(self._buffer)))
        self._size = len(self._buffer)
        if cython.compiled:
            self._room = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._buffer))
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def row(self, source: ColumnSource, size: cython.Py_ssize_t) -> cython.int:
        """Write a row of an Arrow column like `blob`. `size` is the result of the last `source.size` call."""
        self.need(LENGTH_BYTES_MAX + max(size, 0))
        if size < 0:
            return self.byte(NULL)
        self.varint(size)
        if size > 0:
            if cython.compiled:
                memcpy(self._room + self._position, cython.address(source._data[source._start]), size)
            else:
                self._room[self._position : self._position + size] = source._data[source._start : source._start + size]
            self._position += size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def open_record(
        self, timestamp_delta: cython.longlong, offset_delta: cython.longlong, body_size: cython.Py_ssize_t
    ) -> cython.int:
        """Write the fields of a record before its key, and ensure space for `body_size` more bytes."""
        length: cython.Py_ssize_t = _record_size(timestamp_delta, offset_delta, body_size)
        self.need(LENGTH_BYTES_MAX + length)
        self.varint(length)
        self.byte(0)
        self.varint(timestamp_delta)
        return self.varint(offset_delta)


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
    """The size of all items. Raise TypeError unless each is bytes or None."""
    total: cython.Py_ssize_t = 0
    for item in items:
        if item is not None:
            if not isinstance(item, bytes):
                raise TypeError(f"keys, values and those of headers are bytes or None, not {type(item).__name__}")
            total += len(item)
    return total


@cython.cfunc
def _flat(headers: Iterable[tuple[str, bytes | None]]) -> list:
    """Return a record's headers as a list of keys and values in turn, all of them bytes or None."""
    items: list = []
    for key, value in headers:
        items.append(key.encode("utf-8"))
        items.append(value)
    return items


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _headers_size(items: list | None) -> cython.Py_ssize_t:
    """The size of the header section of a record, including its count."""
    size: cython.Py_ssize_t
    if items is None:
        return 1
    size = _varint_size(len(items) // 2)
    for item in items:
        size += _blob_size(item)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _write_headers(writer: RecordWriter, items: list | None) -> cython.int:
    if items is None:
        return writer.byte(0)
    writer.varint(len(items) // 2)
    for item in items:
        writer.blob(item)
    return 0


def time_range(timestamps: list[int]) -> tuple[int, int]:
    """Return the smallest and the largest timestamp. Compiled, raise OverflowError for more than 64 bits."""
    lowest: cython.longlong = timestamps[0]
    highest: cython.longlong = lowest
    timestamp: cython.longlong
    for timestamp in timestamps:
        lowest = min(lowest, timestamp)
        highest = max(highest, timestamp)
    return lowest, highest


def encode_records(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: Sequence[Iterable[tuple[str, bytes | None]] | None] | None,
    timestamps: list[int] | None,
    base_timestamp: cython.longlong,
    offset_deltas: list[int] | None,
    prefix_bytes: cython.Py_ssize_t,
    used: bytearray | None = None,
) -> bytearray:
    """Encode records into a buffer after `prefix_bytes` of free space. Every list is as long as `values`.

    Without `timestamps` all records have the base timestamp. Without `offset_deltas` they count from 0. The memory of
    `used`, a buffer that is no longer needed, may be reused.
    """
    count: cython.Py_ssize_t = len(values)
    size: cython.Py_ssize_t = prefix_bytes + count * FIELDS_BYTES_MAX + _measure(values)
    index: cython.Py_ssize_t
    timestamp: cython.longlong
    sections: list | None = None
    if keys is not None:
        size += _measure(keys)
    if headers is not None:
        sections = [_flat(each) if each else None for each in headers]
        for section in sections:
            if section is not None:
                size += _measure(section) + len(section) * HEADER_FIELDS_BYTES_MAX
    writer: RecordWriter = RecordWriter(size, prefix_bytes, used)
    for index in range(count):
        timestamp = base_timestamp if timestamps is None else timestamps[index]
        key: bytes | None = None if keys is None else keys[index]
        value: bytes | None = values[index]
        items: list | None = None if sections is None else sections[index]
        writer.open_record(
            timestamp - base_timestamp,
            index if offset_deltas is None else offset_deltas[index],
            _blob_size(key) + _blob_size(value) + _headers_size(items),
        )
        writer.blob(key)
        writer.blob(value)
        _write_headers(writer, items)
    return writer.written()


@cython.final
@cython.cclass
class ColumnSource:
    """A column of bytes, or of lists, in Arrow's layout: row r is between offsets r and r + 1.

    `first` is the row of the buffers at which the column begins. The rows of a list column refer to other columns; it
    has no data of its own, and `limit` is the length of those columns.
    """

    _offsets: cython.const[cython.longlong][::1]
    _validity: cython.const[cython.uchar][::1]
    _all_valid: cython.bint
    _first: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _start: cython.Py_ssize_t
    _data: cython.const[cython.uchar][::1]

    def __init__(
        self, offsets: Bytes, validity: Bytes | None, first: cython.Py_ssize_t, limit: cython.Py_ssize_t, data: Bytes
    ) -> None:
        self._offsets = offsets
        self._validity = b"" if validity is None else validity
        self._all_valid = validity is None
        self._first = first
        self._limit = limit
        self._start = 0
        self._data = data

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def need(self, rows: cython.Py_ssize_t) -> cython.int:
        """Raise ValueError unless the column has this many rows. `size` does not check again."""
        end: cython.Py_ssize_t = self._first + rows
        is_short: cython.bint = end >= len(self._offsets) or (
            not self._all_valid and (end + 7) >> 3 > len(self._validity)
        )
        if rows and (self._first < 0 or is_short):
            raise ValueError(f"an Arrow column has fewer rows than the {rows} to encode")
        return 0

    @cython.cfunc
    @cython.inline
    @cython.boundscheck(False)
    @cython.exceptval(-2, check=True)
    def size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The size of a row, whose data begins at `_start`; -1 for null. `need` must have been called for the row."""
        index: cython.Py_ssize_t = self._first + row
        end: cython.longlong
        if not self._all_valid and not (self._validity[index >> 3] >> (index & 7)) & 1:
            return -1
        self._start = self._offsets[index]
        end = self._offsets[index + 1]
        if self._start < 0 or end < self._start or end > self._limit:
            return self._lead_out()
        return end - self._start

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _lead_out(self) -> cython.Py_ssize_t:
        raise ValueError("an Arrow column has offsets beyond the end of its data")

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.exceptval(-2, check=True)
    def rises(self, rows: cython.Py_ssize_t) -> cython.bint:
        """Return True if the offsets of the rows increase and are within the data. Call `need` first."""
        index: cython.Py_ssize_t
        falls: cython.Py_ssize_t = 0
        if rows == 0:
            return True
        for index in range(self._first, self._first + rows):
            falls += self._offsets[index + 1] < self._offsets[index]
        return falls == 0 and self._offsets[self._first] >= 0 and self._offsets[self._first + rows] <= self._limit

    @cython.cfunc
    @cython.inline
    @cython.boundscheck(False)
    @cython.exceptval(-2, check=True)
    def span(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The total size of rows whose offsets increase."""
        return self._offsets[self._first + end] - self._offsets[self._first + start]

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def likely_size(self, first: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Estimate the total size of the rows from `first` up to `rows`; their offsets are not checked yet."""
        span: cython.longlong = self._offsets[self._first + rows] - self._offsets[self._first + first]
        return max(0, min(span, self._limit))


@cython.final
@cython.cclass
class TableEncoder:
    """Encodes rows of Arrow columns as records. Keys and headers are optional."""

    _values: ColumnSource
    _keys: ColumnSource | None
    _headers: ColumnSource | None
    _header_keys: ColumnSource
    _header_values: ColumnSource
    _timestamps: cython.const[cython.longlong][::1]

    def __init__(
        self,
        values: ColumnSource,
        keys: ColumnSource | None,
        headers: tuple[ColumnSource, ColumnSource, ColumnSource] | None,
        timestamps: Bytes,
    ) -> None:
        """All columns must have as many rows as there are timestamps."""
        self._values = values
        self._keys = keys
        # Without headers any column can replace theirs, because it is never read.
        self._headers = None if headers is None else headers[0]
        self._header_keys = values if headers is None else headers[1]
        self._header_values = values if headers is None else headers[2]
        self._timestamps = timestamps
        values.need(len(self._timestamps))
        if keys is not None:
            keys.need(len(self._timestamps))
        if self._headers is not None:
            self._headers.need(len(self._timestamps))
            self._header_keys.need(self._headers._limit)
            self._header_values.need(self._headers._limit)

    def timestamp(self, row: cython.Py_ssize_t) -> int:
        return self._timestamps[row]

    def cut(self, limit_bytes: cython.Py_ssize_t, limit_rows: cython.Py_ssize_t) -> list[tuple[int, int, int]]:
        """Split the rows into pieces within both limits (a larger row is alone): first row, end row, size.

        The size is an upper bound of what the records take.
        """
        pieces = []
        start: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        rows: cython.Py_ssize_t = len(self._timestamps)
        numbers: cython.Py_ssize_t = self._numbers_size()
        # No length in a record exceeds that of the whole batch, if the record shares its batch with others.
        fields: cython.Py_ssize_t = numbers + 3 * _varint_size(max(limit_bytes, 1)) + 1
        by_offsets: cython.bint = self._headers is None and self._values.rises(rows)
        if self._keys is not None:
            by_offsets = by_offsets and self._keys.rises(rows)
        while start < rows:
            most: cython.Py_ssize_t = min(rows, start + max(limit_rows, 1))
            end = self._likely_end(start, most, limit_bytes, fields) if by_offsets else start
            total: cython.Py_ssize_t = self._bound(start, end, fields)
            while end < most and (end == start or not by_offsets):
                size: cython.Py_ssize_t = self._row_size(end, numbers)
                if end > start and total + size > limit_bytes:
                    break
                total += size
                end += 1
            pieces.append((start, end, total))
            start = end
        return pieces

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _likely_end(
        self,
        start: cython.Py_ssize_t,
        most: cython.Py_ssize_t,
        limit_bytes: cython.Py_ssize_t,
        fields: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Find the end of the rows from `start` on, up to `most`, that fit. Binary search, because offsets increase."""
        low: cython.Py_ssize_t = start
        high: cython.Py_ssize_t = most
        while low < high:
            middle: cython.Py_ssize_t = (low + high + 1) // 2
            if self._bound(start, middle, fields) <= limit_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _bound(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, fields: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The maximum size of these rows, which have no headers."""
        size: cython.Py_ssize_t = (end - start) * fields + self._values.span(start, end)
        return size if self._keys is None else size + self._keys.span(start, end)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _row_size(self, row: cython.Py_ssize_t, numbers: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The maximum size of a row whose numbers have the given maximum size."""
        size: cython.Py_ssize_t = numbers + _sized(self._values.size(row)) + self._headers_size(row)
        size += 1 if self._keys is None else _sized(self._keys.size(row))
        return size + _varint_size(size)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _numbers_size(self) -> cython.Py_ssize_t:
        """The maximum size of attributes, timestamp and offset delta of a record, in a batch of any of the rows."""
        lowest: cython.longlong = 0
        highest: cython.longlong = 0
        row: cython.Py_ssize_t
        for row in range(len(self._timestamps)):
            lowest = self._timestamps[row] if row == 0 else min(lowest, self._timestamps[row])
            highest = self._timestamps[row] if row == 0 else max(highest, self._timestamps[row])
        # Encoding reports timestamps that are too far apart for one batch.
        span: cython.longlong = INT64_MAX if lowest < 0 and highest > INT64_MAX + lowest else highest - lowest
        return _record_size(span, len(self._timestamps), 0)

    def encode(
        self,
        first: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        limit_bytes: cython.Py_ssize_t,
        prefix_bytes: cython.Py_ssize_t,
        order: Bytes | None = None,
        used: bytearray | None = None,
    ) -> tuple[bytearray, int, int, int]:
        """Encode the rows from `first` up to `rows` that fit, into a buffer after `prefix_bytes` of free space.

        At least one row is encoded, however large. Further rows are added while the buffer has at most `limit_bytes`,
        including the free space. The result is the buffer, the number of rows, and their smallest and largest time.
        A row whose timestamp is too far from the others is not encoded, but its timestamp is included; the buffer is
        unusable then. `order`, 64-bit numbers, is a permutation of rows; `first` and `rows` are then indexes into it.
        The memory of `used`, a buffer that is no longer needed, may be reused.
        """
        picked: cython.const[cython.longlong][::1] = NO_ROWS if order is None else order
        in_order: cython.bint = order is None
        at: cython.Py_ssize_t
        base_timestamp: cython.longlong = self._timestamps[first if in_order else picked[first]]
        lowest: cython.longlong = base_timestamp
        highest: cython.longlong = base_timestamp
        timestamp: cython.longlong
        row: cython.Py_ssize_t
        size: cython.Py_ssize_t
        likely: cython.Py_ssize_t = self._likely_size(first, rows, limit_bytes) if in_order else limit_bytes
        writer: RecordWriter = RecordWriter(prefix_bytes + likely, prefix_bytes, used)
        count: cython.Py_ssize_t = 0
        if cython.compiled and in_order and base_timestamp >= 0 and self._headers is None:
            count = self._encode_plain(
                writer, first, rows, limit_bytes, cython.address(lowest), cython.address(highest)
            )
        for at in range(first + count, rows):
            row = at if in_order else picked[at]
            timestamp = self._timestamps[row]
            key_size: cython.Py_ssize_t = -1 if self._keys is None else self._keys.size(row)
            value_size: cython.Py_ssize_t = self._values.size(row)
            body_size: cython.Py_ssize_t = _sized(key_size) + _sized(value_size) + self._headers_size(row)
            size = _record_size(timestamp - base_timestamp, count, body_size)
            size += _varint_size(size)
            if count and writer._position + size > limit_bytes:
                break
            lowest = min(lowest, timestamp)
            highest = max(highest, timestamp)
            if lowest < 0 and highest > INT64_MAX + lowest:
                break
            if size + FIELDS_BYTES_MAX > writer._size - writer._position:
                writer.grow(size + FIELDS_BYTES_MAX)
            writer.open_record(timestamp - base_timestamp, count, body_size)
            if self._keys is None:
                writer.byte(NULL)
            else:
                writer.row(self._keys, key_size)
            writer.row(self._values, value_size)
            self._write_headers(writer, row)
            count += 1
        return writer.written(), count, lowest, highest

    @cython.cfunc
    @cython.boundscheck(False)  # `need` has been called for the rows of all columns.
    @cython.exceptval(-1, check=False)
    def _encode_plain(
        self,
        writer: RecordWriter,
        first: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        limit_bytes: cython.Py_ssize_t,
        lowest: cython.p_longlong,
        highest: cython.p_longlong,
    ) -> cython.Py_ssize_t:
        """Encode rows without headers while they are plain and fit. Return the number of rows encoded.

        All state is kept in local variables meanwhile, because the compiler must assume that writing bytes could change
        the fields.
        """
        out: cython.p_uchar = writer._room
        position: cython.Py_ssize_t = writer._position
        limit: cython.Py_ssize_t = min(limit_bytes, writer._size - FIELDS_BYTES_MAX)
        times: cython.p_const_longlong = cython.address(self._timestamps[0])
        base: cython.longlong = times[first]
        least: cython.longlong = base
        most: cython.longlong = base
        value_source: ColumnSource = self._values
        values: cython.p_const_longlong = cython.address(value_source._offsets[value_source._first])
        value_data: cython.p_const_uchar = cython.address(value_source._data[0])
        value_bits: cython.p_const_uchar = cython.address(value_source._validity[0])
        has_keys: cython.bint = self._keys is not None
        key_source: ColumnSource = self._values if self._keys is None else self._keys
        keys: cython.p_const_longlong = cython.address(key_source._offsets[key_source._first])
        key_data: cython.p_const_uchar = cython.address(key_source._data[0])
        key_bits: cython.p_const_uchar = cython.address(key_source._validity[0])
        key_size: cython.longlong = -1
        value_size: cython.longlong
        length: cython.Py_ssize_t
        count: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        bit: cython.Py_ssize_t
        for row in range(first, rows):
            if times[row] < 0:
                break
            value_size = values[row + 1] - values[row]
            bit = value_source._first + row
            if not value_source._all_valid and not (value_bits[bit >> 3] >> (bit & 7)) & 1:
                value_size = -1
            elif values[row] < 0 or value_size < 0 or values[row + 1] > value_source._limit:
                break
            if has_keys:
                key_size = keys[row + 1] - keys[row]
                bit = key_source._first + row
                if not key_source._all_valid and not (key_bits[bit >> 3] >> (bit & 7)) & 1:
                    key_size = -1
                elif keys[row] < 0 or key_size < 0 or keys[row + 1] > key_source._limit:
                    break
            length = _record_size(times[row] - base, count, _sized(key_size) + _sized(value_size) + 1)
            if length > limit - position - LENGTH_BYTES_MAX:
                break
            least = min(least, times[row])
            most = max(most, times[row])
            position = _put_varint(out, position, length)
            out[position] = 0
            position = _put_varint(out, position + 1, times[row] - base)
            position = _put_varint(out, position, count)
            position = _put_varint(out, position, key_size)
            if key_size > 0:
                memcpy(out + position, key_data + keys[row], key_size)
                position += key_size
            position = _put_varint(out, position, value_size)
            if value_size > 0:
                memcpy(out + position, value_data + values[row], value_size)
                position += value_size
            out[position] = 0
            position += 1
            count += 1
        writer._position = position
        lowest[0] = least
        highest[0] = most
        return count

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _likely_size(
        self, first: cython.Py_ssize_t, rows: cython.Py_ssize_t, limit_bytes: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Estimate the size of the rows, assuming average headers, but at most the limit."""
        size: cython.Py_ssize_t = self._values.likely_size(first, rows) + (rows - first) * FIELDS_BYTES_MAX
        total: cython.Py_ssize_t = len(self._timestamps)
        headers: cython.Py_ssize_t
        if self._keys is not None:
            size += self._keys.likely_size(first, rows)
        if self._headers is not None and self._headers._limit:
            headers = self._headers._limit
            headers_size: cython.Py_ssize_t = headers * HEADER_FIELDS_BYTES_MAX
            headers_size += self._header_keys.likely_size(0, headers) + self._header_values.likely_size(0, headers)
            size += headers_size // total * (rows - first)
        return min(size, max(limit_bytes, 0)) + FIELDS_BYTES_MAX

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=True)
    def _headers_size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return 1 if self._headers is None else self._some_headers_size(self._headers, row)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _some_headers_size(self, headers: ColumnSource, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        count: cython.Py_ssize_t = max(headers.size(row), 0)
        size: cython.Py_ssize_t = _varint_size(count)
        key_size: cython.Py_ssize_t
        header: cython.Py_ssize_t
        for header in range(headers._start, headers._start + count):
            key_size = self._header_keys.size(header)
            if key_size < 0:
                raise ValueError("a header's key is null")
            size += _sized(key_size) + _sized(self._header_values.size(header))
        return size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _write_headers(self, writer: RecordWriter, row: cython.Py_ssize_t) -> cython.int:
        if self._headers is None:
            return writer.byte(0)
        return self._write_some_headers(writer, self._headers, row)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_some_headers(self, writer: RecordWriter, headers: ColumnSource, row: cython.Py_ssize_t) -> cython.int:
        count: cython.Py_ssize_t = max(headers.size(row), 0)
        header: cython.Py_ssize_t
        writer.varint(count)
        for header in range(headers._start, headers._start + count):
            writer.row(self._header_keys, self._header_keys.size(header))
            writer.row(self._header_values, self._header_values.size(header))
        return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _sized(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The size of a length and its bytes; -1 means null."""
    return 1 if size < 0 else _varint_size(size) + size
