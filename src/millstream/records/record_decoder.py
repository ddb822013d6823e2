"""Decodes the records of an uncompressed batch body; see `millstream.records` for the format.

The same source runs compiled by Cython as C, or as plain Python, so it uses only what both support. Every read is
bounded first: a field must end within its record, and a record within the body. A count must be possible for the number
of bytes that follow.

`RecordReader` and its users share this file, because the C compiler inlines only within one file. C functions without a
result are declared to return an int, which is 0. With -1 Cython signals an exception; after a void function it would
have to check for one after every call.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from millstream.records import header as _header
from millstream.records.checksum import crc32c
from millstream.records.header import CorruptBatch, OversizedBatch
from millstream.records.record import Record

Bytes = bytes | bytearray | memoryview
Room = Callable[[int], Any]
"""Allocates writable memory of this many bytes."""
BinaryBuffers = tuple[int, bytearray, Any, int, Any, int]
"""A column's null count and validity, its offsets and their used bytes, and its data and its used bytes."""

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.ref import Py_INCREF
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
    from cython.cimports.libc.string import memcpy
    from cython.cimports.millstream.records._python import (
        PyBUF_READ,
        PyByteArray_FromStringAndSize,
        PyGC_Disable,
        PyGC_Enable,
        PyMemoryView_FromMemory,
        PyObject_GC_UnTrack,
        PyType_GenericAlloc,
        has_short_crc32c,
        short_crc32c,
    )
    from cython.cimports.millstream.records.message import Message
else:
    from millstream.records.message import Message

COMPILED = cython.compiled

# Checksums of up to this many bytes are computed here.
SHORT_CRC_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1024 if cython.compiled and has_short_crc32c() else 0)

INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
RECORD_BYTES_MIN = cython.declare(cython.Py_ssize_t, _header.RECORD_BYTES_MIN)
PLAIN_MARGIN = cython.declare(cython.Py_ssize_t, 16)
HEADER_BYTES_MIN = cython.declare(cython.Py_ssize_t, 2)
RECORD = cython.declare(type, Record)

# Kinds of invalid numbers. Being plain integers, they need no interpreter lock.
LENGTH = cython.declare(cython.uint, 0)
RECORD_LENGTH = cython.declare(cython.uint, 1)
HEADER_COUNT = cython.declare(cython.uint, 2)
_WHAT = ("a length of", "a record length of", "a header count of")

# Batches with at least this many records become columns without the interpreter lock, so that other threads continue.
UNLOCKED_RECORDS_MIN = cython.declare(cython.Py_ssize_t, 100)

HEADER_BYTES = cython.declare(cython.Py_ssize_t, _header.HEADER_BYTES)
LENGTH_END = cython.declare(cython.Py_ssize_t, _header.LENGTH_END)
CRC_START = cython.declare(cython.Py_ssize_t, _header.CRC_START)
MAGIC = cython.declare(cython.longlong, _header.MAGIC)
BASE_OFFSET_MAX = cython.declare(cython.longlong, _header.BASE_OFFSET_MAX)
LOG_APPEND_TIME = cython.declare(cython.longlong, _header.LOG_APPEND_TIME)
MADE_IDS_HIGH = cython.declare(cython.longlong, _header.MADE_IDS >> 8)
COMPRESSED = cython.declare(cython.longlong, _header.COMPRESSION_MASK)
SPECIAL = cython.declare(cython.longlong, _header.COMPRESSION_MASK | _header.CONTROL)

# The memory of a record and of a header as Python objects, besides their bytes; slightly more than measured.
RECORD_OBJECT_BYTES = cython.declare(cython.Py_ssize_t, 160)
HEADER_OBJECT_BYTES = cython.declare(cython.Py_ssize_t, 112)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _small(data: cython.p_const_uchar, number: cython.p_uint) -> cython.Py_ssize_t:
    """Read an unsigned varint of up to three bytes.

    Return its length, or 0 if it is longer. The caller guarantees that three bytes are readable.
    """
    first: cython.uint = data[0]
    if first < 0x80:
        number[0] = first
        return 1
    second: cython.uint = data[1]
    first = first & 0x7F | (second & 0x7F) << 7
    if second < 0x80:
        number[0] = first
        return 2
    third: cython.uint = data[2]
    number[0] = first | third << 14
    return 3 if third < 0x80 else 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _plain(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    last_offset_delta: cython.longlong,
    time: cython.p_longlong,
    delta: cython.p_longlong,
    key: cython.p_Py_ssize_t,
    key_size: cython.p_Py_ssize_t,
    value: cython.p_Py_ssize_t,
    value_size: cython.p_Py_ssize_t,
) -> cython.Py_ssize_t:
    """Parse the record at `at` if it is plain: small numbers, no headers and no errors, except perhaps its timestamp.

    Return the position after it, and set the other arguments. Return 0 for any other record, and if the record does not
    end before `end`. Up to `PLAIN_MARGIN` bytes after `end` may be read.
    """
    number: cython.uint = 0
    size: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    if at >= end:
        return 0
    size = _small(data + at, cython.address(number))
    at += size
    if not size or number & 1 or (number >> 1) < RECORD_BYTES_MIN - 1 or (number >> 1) > end - at:
        return 0
    limit = at + (number >> 1)
    at += 1
    size = _small(data + at, cython.address(number))
    if not size:
        return 0
    time[0] = cython.cast(cython.longlong, number >> 1) ^ -cython.cast(cython.longlong, number & 1)
    at += size
    size = _small(data + at, cython.address(number))
    if not size or number & 1 or (number >> 1) > last_offset_delta:
        return 0
    delta[0] = number >> 1
    at += size
    size = _small(data + at, cython.address(number))
    at += size
    key[0] = at
    key_size[0] = -1
    if number != 1:
        if not size or number & 1 or (number >> 1) > limit - at:
            return 0
        key_size[0] = number >> 1
        at += number >> 1
    size = _small(data + at, cython.address(number))
    at += size
    value[0] = at
    value_size[0] = -1
    if number != 1:
        if not size or number & 1 or (number >> 1) > limit - at:
            return 0
        value_size[0] = number >> 1
        at += number >> 1
    return limit if at + 1 == limit and not data[at] else 0


@cython.final
@cython.cclass
class RecordReader:
    """Reads the fields of records, and nothing beyond the current record."""

    _data: cython.const[cython.uchar][::1]
    _start: cython.Py_ssize_t
    _position: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _budget: cython.Py_ssize_t

    def __init__(self, data: Bytes) -> None:
        self._budget = 0
        self._data = data
        self._start = self._position = 0
        self._limit = self._end = len(data)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def enter(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Continue with the batch body from `start` to `end`, which must be within the data."""
        if not 0 <= start <= end <= len(self._data):
            raise AssertionError("the range of a batch body is outside its data")
        self._start = self._position = start
        self._limit = self._end = end
        return 0

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _place(self) -> cython.Py_ssize_t:
        """The current position within the body, for error messages."""
        return self._position - self._start

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def varint(self) -> cython.longlong:
        """Read a number of up to 32 bits."""
        return self._number(32)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def varlong(self) -> cython.longlong:
        """Read a number of up to 64 bits."""
        return self._number(64)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)  # `_position + 1 < _limit <= _end`, and `_end` is at most the size of the data.
    @cython.exceptval(-2, check=True)
    def _number(self, bits: cython.int) -> cython.longlong:
        """Read a number of one or two bytes, as nearly all numbers are. `_long_number` reads the others."""
        value: cython.ulonglong
        second: cython.ulonglong
        if self._position + 1 < self._limit:
            value = self._data[self._position]
            if value < 0x80:
                self._position += 1
                return (value >> 1) ^ -(value & 1)
            second = self._data[self._position + 1]
            if second < 0x80:
                self._position += 2
                value = (value & 0x7F) | (second << 7)
                return (value >> 1) ^ -(value & 1)
        return self._long_number(bits)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def _long_number(self, bits: cython.int) -> cython.longlong:
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        shift: cython.int = 0
        while True:
            if self._position >= self._limit:
                return self._runs_over()
            byte = self._data[self._position]
            self._position += 1
            if shift + 7 > bits and byte >> (bits - shift):
                return self._too_long(bits)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-2, check=True)
    def _runs_over(self) -> cython.longlong:
        raise CorruptBatch(f"a field runs over the end of its record at byte {self._place()}")

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-2, check=True)
    def _too_long(self, bits: cython.int) -> cython.longlong:
        raise CorruptBatch(f"a number has more than {bits} bits at byte {self._place()}")

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def size(self) -> cython.Py_ssize_t:
        """Read the length of the following bytes, and check that they exist. Return -1 for null."""
        size: cython.longlong = self._number(32)
        if size < -1 or size > self._limit - self._position:
            return self._wrong(LENGTH, size)
        return size

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-2, check=True)
    def _wrong(self, what: cython.uint, number: cython.longlong) -> cython.Py_ssize_t:
        left = self._limit - self._position
        raise CorruptBatch(f"{_WHAT[what]} {number}, but only {left} bytes are left, at byte {self._place()}")

    @cython.cfunc
    @cython.inline
    def blob(self) -> object:
        """Read the following bytes, or None for null."""
        size: cython.Py_ssize_t = self.size()
        if size < 0:
            return None
        return self.take(size)

    @cython.cfunc
    @cython.inline
    def take(self, size: cython.Py_ssize_t) -> bytes:
        """Return the next `size` bytes. The caller has checked that they exist."""
        start: cython.Py_ssize_t = self._position
        if size == 0:
            return b""
        self._position += size
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(self._data[start])), size)
        else:  # noqa: RET505 - without it Cython warns of code that cannot be reached.
            return bytes(self._data[start : start + size])

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def open_record(self) -> cython.int:
        """Begin the next record. Its length limits all reads until `close_record`."""
        length: cython.longlong
        self._limit = self._end
        length = self._number(32)
        if length < RECORD_BYTES_MIN - 1 or length > self._end - self._position:
            self._wrong(RECORD_LENGTH, length)
        self._limit = self._position + length
        self._position += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def close_record(self) -> cython.int:
        """End the record, which must have been read completely."""
        if self._position != self._limit:
            self._left_over()

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-1, check=False)
    def _left_over(self) -> cython.int:
        raise CorruptBatch(f"a record has bytes after its last field, at byte {self._place()}")

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def header_count(self) -> cython.Py_ssize_t:
        """Read the number of headers, and check that the remaining bytes can contain so many."""
        if self._position + 1 == self._limit and self._data[self._position] == 0:
            self._position += 1  # Nearly all records end here, without headers.
            return 0
        return self._some_headers()

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=True)
    def _some_headers(self) -> cython.Py_ssize_t:
        count: cython.longlong = self._number(32)
        if count < 0 or count > (self._limit - self._position) // HEADER_BYTES_MIN:
            return self._wrong(HEADER_COUNT, count)
        return count

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def header_key_size(self) -> cython.Py_ssize_t:
        """Read the length of a header's key, which cannot be null."""
        size: cython.Py_ssize_t = self.size()
        if size < 0:
            raise CorruptBatch(f"a header has no key at byte {self._place()}")
        return size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def spend(self, count: cython.Py_ssize_t, each_bytes: cython.Py_ssize_t) -> cython.int:
        """Subtract the memory of `count` objects from the budget before they are created."""
        if count > self._budget // each_bytes:
            raise OversizedBatch("the records would take more memory as objects than is allowed")
        self._budget -= count * each_bytes

    @cython.cfunc
    def headers(self) -> tuple:
        """Read all headers of the record. Bytes of a key that are not UTF-8 are replaced, as Java does."""
        count: cython.Py_ssize_t = self.header_count()
        if count == 0:
            return ()
        headers: list = []
        self.spend(count, HEADER_OBJECT_BYTES)
        for _ in range(count):
            key = self.take(self.header_key_size()).decode("utf-8", "replace")
            headers.append(_untracked((key, self.blob())))
        return _untracked(tuple(headers))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self) -> cython.int:
        """Check that the body ends after the last record."""
        if self._position != self._end:
            raise CorruptBatch(f"{self._end - self._position} bytes follow the last record")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2, check=True)
def _moved(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """Compute a record's timestamp, and check that it does not overflow."""
    if (delta > 0 and base > INT64_MAX - delta) or (delta < 0 and base < -INT64_MAX - 1 - delta):
        return _beyond_time(base, delta)
    return base + delta


@cython.cfunc
@cython.with_gil
@cython.exceptval(-2, check=True)
def _beyond_time(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    raise CorruptBatch(f"a record's timestamp is out of range: base {base} plus {delta} exceeds 64 bits")


@cython.cfunc
@cython.exceptval(-1, check=False)
def _check_count(count: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t) -> cython.int:
    if count < 0 or count > size_bytes // RECORD_BYTES_MIN:
        raise CorruptBatch(f"{count} records do not fit into {size_bytes} bytes")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2, check=True)
def _offset_delta(reader: RecordReader, last_offset_delta: cython.longlong) -> cython.longlong:
    """Read a record's offset delta, and check that it is within the batch."""
    delta: cython.longlong = reader.varint()
    if delta < 0 or delta > last_offset_delta:
        return _beyond_batch(delta, last_offset_delta)
    return delta


@cython.cfunc
@cython.with_gil
@cython.exceptval(-2, check=True)
def _beyond_batch(delta: cython.longlong, last_offset_delta: cython.longlong) -> cython.longlong:
    raise CorruptBatch(f"a record's offset delta {delta} is not within 0 and {last_offset_delta}")


@cython.cfunc
@cython.inline
def _untracked(made: tuple) -> tuple:
    """Exempt a tuple from garbage collection, because no object in the tuple can refer back to the tuple."""
    if cython.compiled:
        PyObject_GC_UnTrack(cython.cast(cython.p_void, made))
    return made


@cython.cfunc
@cython.inline
def _record(offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: tuple) -> Record:
    """Create a record as `tuple.__new__` does.

    No object in a record can refer back to the record. So records are exempt from garbage collection, which would
    otherwise scan millions of them again and again.
    """
    if cython.compiled:
        made = PyType_GenericAlloc(RECORD, 5)
        PyObject_GC_UnTrack(cython.cast(cython.p_void, made))
        Py_INCREF(offset)
        PyTuple_SET_ITEM(made, 0, offset)
        Py_INCREF(timestamp)
        PyTuple_SET_ITEM(made, 1, timestamp)
        Py_INCREF(key)
        PyTuple_SET_ITEM(made, 2, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(made, 3, value)
        Py_INCREF(headers)
        PyTuple_SET_ITEM(made, 4, headers)
        return made
    else:  # noqa: RET505 - without it Cython warns of code that cannot be reached.
        return Record(offset, timestamp, key, value, headers)


@cython.cfunc
@cython.inline
def _message(
    topic: str,
    partition: object,
    offset: cython.longlong,
    timestamp: cython.longlong,
    key: bytes | None,
    value: bytes | None,
    headers: tuple,
    made_ids: tuple | None,
) -> Message:
    if cython.compiled:
        made: Message = Message.__new__(Message)
        made._topic = topic
        made._partition = partition
        made._offset = offset
        made._timestamp = timestamp
        made._key = key
        made._value = value
        made._headers = headers
        made._made = made_ids
        return made
    else:  # noqa: RET505 - without it Cython warns of code that cannot be reached.
        return Message(topic, partition, offset, timestamp, key, value, headers, made_ids)


@cython.cfunc
def _replaced(key: bytes) -> bytes:
    """A header's key as UTF-8, with replacement characters for invalid bytes."""
    return key.decode("utf-8", "replace").encode("utf-8")


@cython.cfunc
@cython.inline
def _is_ascii(data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    index: cython.Py_ssize_t
    for index in range(start, start + size):  # noqa: SIM110 - all() would make a generator of it when compiled.
        if data[index] >= 0x80:
            return False
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _decode(
    reader: RecordReader,
    records: list,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    last_offset_delta: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: int | None,
    place: tuple | None,
    made_ids: tuple | None,
) -> cython.int:
    offset: cython.longlong
    timestamp: cython.longlong
    last: cython.longlong = base_timestamp
    time: object = base_timestamp if append_timestamp is None else append_timestamp
    appended: cython.bint = append_timestamp is not None
    append: cython.longlong = 0 if append_timestamp is None else append_timestamp
    topic: str = "" if place is None else place[0]
    partition: object = None if place is None else place[1]
    _check_count(count, reader._end - reader._start)
    reader.spend(count, RECORD_OBJECT_BYTES)
    for _ in range(count):
        reader.open_record()
        timestamp = _moved(base_timestamp, reader.varlong())
        offset = base_offset + _offset_delta(reader, last_offset_delta)
        key = reader.blob()
        value = reader.blob()
        headers = reader.headers()
        reader.close_record()
        if place is not None:
            timestamp = append if appended else timestamp
            records.append(_message(topic, partition, offset, timestamp, key, value, headers, made_ids))
            continue
        if timestamp != last and not appended:  # Neighbours usually have the same timestamp and share the object.
            last = timestamp
            time = timestamp
        records.append(_record(offset, time, key, value, headers))
    return reader.finish()


def decode_records(
    data: Bytes,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    last_offset_delta: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: int | None,
    budget_bytes: cython.Py_ssize_t,
    place: tuple[str, int] | None = None,
    made_ids: tuple[int, int, int, int] | None = None,
) -> tuple[list, int]:
    """Decode the `count` records of a batch body. A given `append_timestamp` is the timestamp of all of them.

    The results are `Record`s, or `Message`s if `place` names a topic and partition. `made_ids` comes from the header's
    `made`.

    A few compressed bytes can contain millions of empty records or headers, which are far larger as objects. So each
    object is subtracted from `budget_bytes` before it is created. The rest of the budget is returned.
    """
    reader: RecordReader = RecordReader(data)
    records: list = []
    reader._budget = budget_bytes
    _decode(reader, records, count, base_offset, last_offset_delta, base_timestamp, append_timestamp, place, made_ids)
    return records, reader._budget


def room(size_bytes: cython.Py_ssize_t) -> bytearray:
    """Allocate this many bytes without clearing them, for a caller that overwrites them all."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size_bytes)
    return bytearray(size_bytes)


@cython.final
@cython.cclass
class RecordSizes:
    """Sums of the maximum sizes that `RecordColumns` needs."""

    rows: cython.Py_ssize_t
    size_bytes: cython.Py_ssize_t

    def __init__(self, rows: cython.Py_ssize_t = 0, size_bytes: cython.Py_ssize_t = 0) -> None:
        self.rows = rows
        self.size_bytes = size_bytes

    def totals(self) -> tuple[int, int]:
        """Return the number of rows, and the total size of the batch bodies that contain them."""
        return self.rows, self.size_bytes

    def add(self, count: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t) -> None:
        """Add the rows and the size of a batch body."""
        _check_count(count, size_bytes)
        self.rows += count
        self.size_bytes += size_bytes


@cython.cfunc
@cython.with_gil
@cython.exceptval(-1, check=False)
def _changed() -> cython.int:
    raise AssertionError("the batch changed while it was read")


@cython.final
@cython.cclass
class BinaryColumn:
    """A binary column in Arrow's layout: all data in one buffer, an end offset per row, and a validity bit per row."""

    offsets: Any
    data: Any
    validity: bytearray
    null_count: cython.Py_ssize_t
    _room: Any
    _offsets: cython.int[::1]
    _data: cython.uchar[::1]
    _validity: cython.uchar[::1]
    _row: cython.Py_ssize_t
    _used: cython.Py_ssize_t

    def __init__(self, rows: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t, room: Room) -> None:
        self.null_count = 0
        self._row = 0
        self._used = 0
        self._room = room
        self.offsets = room(4 * (rows + 1))
        self.data = room(size_bytes)
        self.validity = bytearray(b"\xff") * ((rows + 7) // 8)
        self._look()
        self._offsets[0] = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _look(self) -> cython.int:
        self._offsets = memoryview(self.offsets).cast("B").cast("i")
        self._data = memoryview(self.data).cast("B")
        self._validity = self.validity
        return 0

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-1, check=False)
    def _reserve(self, size_bytes: cython.Py_ssize_t) -> cython.int:
        """Ensure that there is space for one more row."""
        if self._row + 1 >= len(self._offsets):
            self.offsets = self._larger(self.offsets, 4 * (self._row + 1), 8 * (self._row + 1))
            self.validity = self.validity + b"\xff" * (len(self.validity) + 1)
        if size_bytes > len(self._data) - self._used:
            self.data = self._larger(self.data, self._used, 2 * self._used + size_bytes)
        self._look()
        return 0

    @cython.cfunc
    def _larger(self, old: Any, used: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t) -> Any:
        new = self._room(size_bytes)
        memoryview(new).cast("B")[:used] = memoryview(old).cast("B")[:used]
        return new

    @cython.cfunc
    def buffers(self) -> tuple:
        """Return null count, validity, offsets with their size, and data with its size."""
        if self._used < len(self._data) // 2:
            self.data = self._larger(self.data, self._used, self._used)
        return self.null_count, self.validity, self.offsets, 4 * (self._row + 1), self.data, self._used

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def push(self, reader: RecordReader) -> cython.int:
        """Move the next bytes, or null, into the next row."""
        size: cython.Py_ssize_t = reader.size()
        at: cython.Py_ssize_t = reader._position
        if size > 0:
            reader._position += size
        return self.put(reader, at, size)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)  # Rows and bytes are checked first.
    @cython.exceptval(-1, check=False)
    def put(self, reader: RecordReader, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        """Copy the bytes at `at` into the next row; a size of -1 means null."""
        row: cython.Py_ssize_t = self._row + 1
        if at + size > len(reader._data):
            return _changed()
        if row >= len(self._offsets) or size > len(self._data) - self._used:
            self._reserve(size)
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(self._data[self._used]), cython.address(reader._data[at]), size)
            else:
                self._data[self._used : self._used + size] = reader._data[at : at + size]
            self._used += size
        elif size < 0:
            self.nullify(self._row, row)
        self._row = row
        self._offsets[row] = self._used
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)  # The rows exist.
    @cython.exceptval(-1, check=False)
    def nullify(self, row: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Set the rows from `row` up to `end` to null, in whole validity bytes where possible."""
        self.null_count += end - row
        while row < end:
            if row & 7 or end - row < 8:
                self._validity[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                row += 1
            else:
                self._validity[row >> 3] = 0
                row += 8
        return 0

    @cython.cfunc
    @cython.with_gil
    @cython.exceptval(-1, check=False)
    def push_text(self, reader: RecordReader) -> cython.int:
        """Move a header's key into the next row. Invalid bytes are replaced, because Arrow's strings must be UTF-8."""
        size: cython.Py_ssize_t = reader.header_key_size()
        at: cython.Py_ssize_t = reader._position
        if _is_ascii(reader._data, at, size):
            reader._position += size
            return self.put(reader, at, size)
        text: bytes = _replaced(reader.take(size))
        return self.put(RecordReader(text), 0, len(text))


@cython.final
@cython.cclass
class RecordColumns:
    """Holds the columns of many records in buffers of Arrow arrays.

    The caller first measures the batches with `RecordSizes`, then adds exactly these batches one by one. All buffers
    are allocated in advance, except those for the bytes of keys and for headers, which grow on demand.
    """

    keys: BinaryColumn
    values: BinaryColumn
    header_keys: BinaryColumn
    header_values: BinaryColumn
    header_offsets: Any
    offsets: Any
    timestamps: Any
    _header_offsets: cython.int[::1]
    _offsets: cython.longlong[::1]
    _timestamps: cython.longlong[::1]
    _row: cython.Py_ssize_t

    def __init__(self, sizes: RecordSizes, room: Room) -> None:
        """`room` allocates memory of the given size."""
        rows: cython.Py_ssize_t = sizes.rows
        self.keys = BinaryColumn(rows, 0, room)
        self.values = BinaryColumn(rows, sizes.size_bytes, room)
        self.header_keys = BinaryColumn(0, 0, room)
        self.header_values = BinaryColumn(0, 0, room)
        self.header_offsets = room(4 * (rows + 1))
        self.offsets = room(8 * rows)
        self.timestamps = room(8 * rows)
        self._header_offsets = memoryview(self.header_offsets).cast("B").cast("i")
        self._offsets = memoryview(self.offsets).cast("B").cast("q")
        self._timestamps = memoryview(self.timestamps).cast("B").cast("q")
        self._header_offsets[0] = 0
        self._row = 0

    def add(
        self,
        data: Bytes,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp: int | None,
    ) -> None:
        """Add the records of one batch body. The arguments are those of `decode_records`."""
        self.fill(RecordReader(data), count, base_offset, last_offset_delta, base_timestamp, append_timestamp)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fill(
        self,
        reader: RecordReader,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp: int | None,
    ) -> cython.int:
        append: cython.longlong = 0 if append_timestamp is None else append_timestamp
        appended: cython.bint = append_timestamp is not None
        if not 0 <= count <= len(self._offsets) - self._row:
            return _changed()
        if count < UNLOCKED_RECORDS_MIN:
            self._fill(reader, count, base_offset, last_offset_delta, base_timestamp, appended, append)
        else:
            with cython.nogil:
                self._fill(reader, count, base_offset, last_offset_delta, base_timestamp, appended, append)
        return reader.finish()

    @cython.cfunc
    @cython.nogil
    @cython.boundscheck(False)  # `fill` has checked that there are enough rows.
    @cython.exceptval(-1, check=False)
    def _fill(
        self,
        reader: RecordReader,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        base_timestamp: cython.longlong,
        appended: cython.bint,
        append_timestamp: cython.longlong,
    ) -> cython.int:
        row: cython.Py_ssize_t = self._row
        timestamp: cython.longlong
        headers: cython.Py_ssize_t
        header: cython.Py_ssize_t
        end: cython.Py_ssize_t = row + count
        while row < end:
            if cython.compiled:
                row += self._fill_plain(reader, row, end, base_offset, last_offset_delta, base_timestamp)
                if row == end:
                    break
            reader.open_record()
            timestamp = _moved(base_timestamp, reader.varlong())
            self._timestamps[row] = timestamp
            self._offsets[row] = base_offset + _offset_delta(reader, last_offset_delta)
            self.keys.push(reader)
            self.values.push(reader)
            headers = reader.header_count()
            for header in range(headers):  # noqa: B007
                self.header_keys.push_text(reader)
                self.header_values.push(reader)
            row += 1
            self._header_offsets[row] = self.header_keys._row
            reader.close_record()
        for row in range(self._row, end if appended else self._row):
            self._timestamps[row] = append_timestamp
        self._row = end
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.boundscheck(False)  # Rows exist, and bytes are checked.
    @cython.exceptval(-1, check=False)
    def _fill_plain(
        self,
        reader: RecordReader,
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        base_timestamp: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Fill rows as long as the records are plain and fit into the buffers. Return the number of filled rows.

        The loop keeps all state in local variables. The compiler would reload the object's fields after each written
        byte, because that write could have changed them. `keyless` is the first row of the current run of rows without
        a key.
        """
        data: cython.p_const_uchar = cython.address(reader._data[0])
        times: cython.p_longlong = cython.address(self._timestamps[0])
        offsets: cython.p_longlong = cython.address(self._offsets[0])
        header_ends: cython.p_int = cython.address(self._header_offsets[0])
        key_ends: cython.p_int = cython.address(self.keys._offsets[0])
        key_data: cython.p_uchar = cython.address(self.keys._data[0])
        key_used: cython.Py_ssize_t = self.keys._used
        key_room: cython.Py_ssize_t = len(self.keys._data)
        value_ends: cython.p_int = cython.address(self.values._offsets[0])
        value_data: cython.p_uchar = cython.address(self.values._data[0])
        value_used: cython.Py_ssize_t = self.values._used
        value_room: cython.Py_ssize_t = len(self.values._data)
        headers: cython.int = self.header_keys._row
        row: cython.Py_ssize_t = first
        at: cython.Py_ssize_t = reader._position
        limit: cython.Py_ssize_t = min(reader._end, len(reader._data) - PLAIN_MARGIN)
        following: cython.Py_ssize_t
        time: cython.longlong = 0
        delta: cython.longlong = 0
        key: cython.Py_ssize_t = 0
        key_size: cython.Py_ssize_t = 0
        value: cython.Py_ssize_t = 0
        value_size: cython.Py_ssize_t = 0
        keyless: cython.Py_ssize_t = first
        while row < end:
            following = _plain(
                data,
                at,
                limit,
                last_offset_delta,
                cython.address(time),
                cython.address(delta),
                cython.address(key),
                cython.address(key_size),
                cython.address(value),
                cython.address(value_size),
            )
            if not following or key_size > key_room - key_used or value_size > value_room - value_used:
                break
            at = following
            times[row] = _moved(base_timestamp, time)
            offsets[row] = base_offset + delta
            if key_size >= 0:
                memcpy(key_data + key_used, data + key, key_size)
                key_used += key_size
                if keyless < row:
                    self.keys.nullify(keyless, row)
                keyless = row + 1
            if value_size >= 0:
                memcpy(value_data + value_used, data + value, value_size)
                value_used += value_size
            else:
                self.values.nullify(row, row + 1)
            row += 1
            key_ends[row] = key_used
            value_ends[row] = value_used
            header_ends[row] = headers
        self.keys.nullify(keyless, row)
        reader._position = at
        self.keys._used = key_used
        self.values._used = value_used
        self.keys._row = self.values._row = row
        return row - first

    def buffers(self) -> tuple[Any, Any, Any]:
        """Return the offsets, the timestamps, and the end of each record's headers."""
        return self.offsets, self.timestamps, self.header_offsets

    def binary_buffers(self) -> list[BinaryBuffers]:
        """Return the buffers of keys, values, header keys and header values."""
        return [self.keys.buffers(), self.values.buffers(), self.header_keys.buffers(), self.header_values.buffers()]


@cython.final
@cython.cclass
class BatchRunDecoder:
    """Decodes consecutive batches of a buffer while they are usual: whole, not compressed and not control batches.

    That avoids the cost of handling each small batch in Python. An unusual or invalid batch ends the run, and the
    caller handles that batch. Uncompiled there is nothing to gain, so every batch ends the run.
    """

    _at: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _left_bytes: cython.Py_ssize_t
    _reader: RecordReader
    _count: cython.Py_ssize_t
    _base_offset: cython.longlong
    _last_offset_delta: cython.longlong
    _base_timestamp: cython.longlong
    _append_timestamp: object
    _is_packed: cython.bint

    def __init__(self, buffer: Bytes, limit_bytes: cython.Py_ssize_t) -> None:
        """`limit_bytes` is the maximum size of all bodies together."""
        self._reader = RecordReader(buffer)
        self._at = self._end = 0
        self._left_bytes = limit_bytes
        self._is_packed = False

    @property
    def is_packed(self) -> bool:
        """True if the last call of `behind` found a compressed batch."""
        return self._is_packed

    @property
    def end(self) -> int:
        """The position at which the run has ended and the next one begins."""
        return self._end

    @property
    def left_bytes(self) -> int:
        """The maximum size of the bodies of further batches."""
        return self._left_bytes

    def leave_out(self, size_bytes: cython.Py_ssize_t, body_bytes: cython.Py_ssize_t) -> None:
        """Continue after the batch at `end`, whose body the caller has handled."""
        self._end += size_bytes
        self._left_bytes -= body_bytes

    def decode(
        self,
        records: list,
        budget_bytes: cython.Py_ssize_t,
        verify: cython.bint,
        place: tuple[str, int] | None = None,
    ) -> int:
        """Append the records of the run that begins at `end`, as `decode_records`. Return the rest of the budget."""
        self._reader._budget = budget_bytes
        if cython.compiled:
            # Garbage collection would run every 700 records, and would find nothing.
            collects: cython.int = PyGC_Disable()
            try:
                self._decode_run(records, verify, place)
            finally:
                if collects:
                    PyGC_Enable()
        return self._reader._budget

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _decode_run(self, records: list, verify: cython.bint, place: tuple | None) -> cython.int:
        while self._enter(verify):
            _decode(
                self._reader,
                records,
                self._count,
                self._base_offset,
                self._last_offset_delta,
                self._base_timestamp,
                self._append_timestamp,
                place,
                None if place is None else self._made_ids(),
            )
        return 0

    @cython.cfunc
    def _made_ids(self) -> tuple | None:
        """Return `BatchHeader.made` of the current batch."""
        at: cython.Py_ssize_t = self._at
        producer_id: cython.longlong = self._long(at + 43)
        epoch: cython.longlong = self._uint(at + 49) & 0xFFFF
        sequence: cython.longlong = self._int(at + 53)
        if not self._reader._data[at + CRC_START] & MADE_IDS_HIGH or producer_id < 0 or epoch > 0x7FFF or sequence < 0:
            return None
        return producer_id, epoch, sequence, self._base_offset

    def behind(
        self, start: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t, offset: cython.longlong
    ) -> tuple[int, int]:
        """Find the end of the whole batches from `start` on that fit into `size_bytes`, at least one.

        Return that position and the offset after the batches, at least `offset`. Bytes that cannot be a batch belong to
        the run before them. Only headers are read, and nothing is checked.
        """
        at: cython.Py_ssize_t = start
        length: cython.longlong
        following: cython.longlong
        self._is_packed = False
        while len(self._reader._data) - at >= HEADER_BYTES:
            length = self._int(at + 8)
            if length < HEADER_BYTES - LENGTH_END or length > len(self._reader._data) - at - LENGTH_END:
                break
            if at > start and at + length + LENGTH_END - start > size_bytes:
                return at, offset
            following = self._long(at) + self._int(at + 23) + 1
            offset = max(offset, following)
            if self._reader._data[at + CRC_START + 1] & COMPRESSED:
                self._is_packed = True
            at += length + LENGTH_END
        return len(self._reader._data), offset

    def whole(self) -> int:
        """The end of the last whole batch in the buffer. Only the lengths of the batches are read."""
        at: cython.Py_ssize_t = 0
        length: cython.longlong
        while len(self._reader._data) - at >= HEADER_BYTES:
            length = self._int(at + 8)
            if length < HEADER_BYTES - LENGTH_END or length > len(self._reader._data) - at - LENGTH_END:
                break
            at += length + LENGTH_END
        return at

    def measure(self, sizes: RecordSizes) -> None:
        """Advance to the end of the run that begins at `end`, and add up the maximum sizes of its columns."""
        while self._enter(False):
            sizes.add(self._count, self._reader._end - self._reader._start)

    def fill(
        self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, verify: cython.bint, columns: RecordColumns
    ) -> int:
        """Add the measured batches from `start` to `end` to the columns.

        Return the position at which it stops: before a batch with a wrong checksum, or at `end`.
        """
        self._end = start
        self._left_bytes = end - start
        while self._end < end and self._enter(verify):
            columns.fill(
                self._reader,
                self._count,
                self._base_offset,
                self._last_offset_delta,
                self._base_timestamp,
                self._append_timestamp,
            )
        return self._end

    @cython.cfunc
    @cython.inline
    @cython.boundscheck(False)  # `_enter` has checked that a whole header exists.
    @cython.exceptval(check=False)
    def _uint(self, at: cython.Py_ssize_t) -> cython.uint:
        """Read a field of four bytes. In this form it compiles to a single instruction."""
        if not cython.compiled:
            return int.from_bytes(self._reader._data[at : at + 4], "big")
        return (
            (cython.cast(cython.uint, self._reader._data[at]) << 24)
            | (cython.cast(cython.uint, self._reader._data[at + 1]) << 16)
            | (cython.cast(cython.uint, self._reader._data[at + 2]) << 8)
            | cython.cast(cython.uint, self._reader._data[at + 3])
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _int(self, at: cython.Py_ssize_t) -> cython.int:
        if not cython.compiled:
            return int.from_bytes(self._reader._data[at : at + 4], "big", signed=True)
        return cython.cast(cython.int, self._uint(at))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _long(self, at: cython.Py_ssize_t) -> cython.longlong:
        if not cython.compiled:
            return int.from_bytes(self._reader._data[at : at + 8], "big", signed=True)
        high: cython.ulonglong = self._uint(at)
        return cython.cast(cython.longlong, (high << 32) | self._uint(at + 4))

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _crc(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
        """Compute the checksum of these bytes; the caller guarantees that they exist.

        The memory view is released before the bytes can be freed.
        """
        start: cython.p_char = cython.cast(cython.p_char, cython.address(self._reader._data[at]))
        if size <= SHORT_CRC_BYTES_MAX:
            return short_crc32c(cython.cast(cython.p_uchar, start), size)
        return crc32c(PyMemoryView_FromMemory(start, size, PyBUF_READ))

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _enter(self, verify: cython.bint) -> cython.bint:
        """Return True if the batch at `end` is usual. Then its fields are set and the reader is at its body.

        It performs all checks of `header.check`.
        """
        if cython.compiled:
            at: cython.Py_ssize_t = self._end
            attributes: cython.longlong
            body_bytes: cython.Py_ssize_t
            if at < 0 or len(self._reader._data) - at < HEADER_BYTES:
                return False
            attributes = self._reader._data[at + CRC_START + 1]
            body_bytes = self._int(at + 8) + LENGTH_END - HEADER_BYTES
            self._count = self._int(at + 57)
            self._base_offset = self._long(at)
            self._last_offset_delta = self._int(at + 23)
            if (
                self._reader._data[at + 16] != MAGIC
                or attributes & SPECIAL
                or not 0 <= body_bytes <= min(len(self._reader._data) - at - HEADER_BYTES, self._left_bytes)
                or not 0 <= self._base_offset <= BASE_OFFSET_MAX
                or self._last_offset_delta < 0
                or not 0 <= self._count <= self._last_offset_delta + 1
                or self._count > body_bytes // RECORD_BYTES_MIN
            ):
                return False
            if verify and self._crc(at + CRC_START, HEADER_BYTES - CRC_START + body_bytes) != (
                self._uint(at + CRC_START - 4)
            ):
                return False
            self._base_timestamp = self._long(at + 27)
            self._append_timestamp = self._long(at + 35) if attributes & LOG_APPEND_TIME else None
            self._left_bytes -= body_bytes
            self._at = at
            self._end = at + HEADER_BYTES + body_bytes
            self._reader.enter(at + HEADER_BYTES, self._end)
            return True
        else:  # noqa: RET505 - without it Cython warns of code that cannot be reached.
            return False
