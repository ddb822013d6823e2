"""Walks the records of an uncompressed batch body without decoding them, so that a broker refuses garbage at append.

A walk accepts a body if it has exactly the given number of records and ends with the last one. Each record must end
with its last field, have attributes of 0 and a timestamp of 64 bits, and its offset deltas must count up from 0. Every
accepted body can be decoded by `record_decoder`, whose limits are not stricter.

The source runs compiled or as plain Python, as in `record_decoder`. Compiled, one loop over local variables walks the
plain records, at a few nanoseconds each. `_careful` walks all other records, and every record in plain Python. It also
finds what is wrong with a record, so both versions report the same problems.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from millstream.records.header import RECORD_BYTES_MIN as _RECORD_BYTES_MIN
from millstream.records.header import CorruptBatch

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE
    from cython.cimports.millstream.records._python import bytes_of

Bytes = bytes | bytearray | memoryview

COMPILED = cython.compiled

LOCKED_BYTES_MAX = 2 * 1024 * 1024
"""Maximum size of a body that is walked with the interpreter lock: 0.1 ms with records of 100 bytes, and at most 1.5 ms
with the smallest ones. A larger body is walked without the lock, and belongs into a worker instead of an event loop."""

LOCKED_MAX = cython.declare(cython.Py_ssize_t, LOCKED_BYTES_MAX)
RECORD_BYTES_MIN = cython.declare(cython.Py_ssize_t, _RECORD_BYTES_MIN)
HEADER_BYTES_MIN = cython.declare(cython.Py_ssize_t, 2)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
NO_TIMESTAMP = cython.declare(cython.longlong, -1)
PLAIN_TIME_MAX = cython.declare(cython.longlong, 1 << 62)
PLAIN_MARGIN = cython.declare(cython.Py_ssize_t, 16)  # The plain loop may read this far behind the end of a record.

# Kinds of problems. Being plain integers, they need no interpreter lock.
RECORD_LENGTH = cython.declare(cython.uint, 1)
ATTRIBUTES = cython.declare(cython.uint, 2)
NUMBER = cython.declare(cython.uint, 3)
TIME = cython.declare(cython.uint, 4)
OFFSET = cython.declare(cython.uint, 5)
LENGTH = cython.declare(cython.uint, 6)
HEADER_COUNT = cython.declare(cython.uint, 7)
HEADER_KEY = cython.declare(cython.uint, 8)
LEFT_OVER = cython.declare(cython.uint, 9)
BODY_END = cython.declare(cython.uint, 10)
_WHAT = (
    "",
    "a record cannot have a length of {}",
    "its attributes are {} instead of 0",
    "a number is incomplete or too long",
    "its timestamp delta {} leads beyond 64 bits",
    "its offset delta is {}; the deltas must count up from 0",
    "a field cannot have a length of {}",
    "it cannot have {} headers",
    "a header has no key",
    "{} bytes follow its last field",
)


class InvalidRecord(CorruptBatch):
    """A record of a batch body is invalid. `index` is its index, or the number of records if bytes follow the last."""

    def __init__(self, index: int, detail: str) -> None:
        super().__init__(detail)
        self.index = index


def walk_records(
    records: Bytes, start: cython.Py_ssize_t, count: cython.longlong, base_timestamp: cython.longlong
) -> tuple[int, int, int]:
    """Check the body of `count` records that begins at `start`. Raise InvalidRecord for the first invalid record.

    Return the oldest and the newest timestamp, and the number of records without a key. Records without a timestamp do
    not count; both timestamps are -1 if no record has one.
    """
    size: cython.Py_ssize_t = len(records)
    walk: RecordWalk = RecordWalk()
    if start > size:
        raise InvalidRecord(0, f"a body cannot begin at byte {start} of {size}")
    if cython.compiled:
        walk._data = bytes_of(records, PyBUF_SIMPLE)
    else:
        walk._data = memoryview(records)
    walk._at, walk._end, walk._base_ms = start, size, base_timestamp
    if size - start > LOCKED_MAX:
        with cython.nogil:
            walk._run(count)
    else:
        walk._run(count)
    if walk._problem == BODY_END:
        raise InvalidRecord(count, f"{walk._number} bytes follow the last of {count} records")
    if walk._problem:
        why = _WHAT[walk._problem].format(walk._number)
        raise InvalidRecord(walk._index, f"{why}, at byte {walk._at - start} of the records")
    if walk._oldest_ms > walk._newest_ms:  # No record has a timestamp.
        walk._oldest_ms = NO_TIMESTAMP
    return walk._oldest_ms, walk._newest_ms, walk._keyless


@cython.final
@cython.no_gc
@cython.freelist(4)
@cython.cclass
class RecordWalk:
    """The state of a walk. It stops at the first problem, and `_index` and `_at` then tell where."""

    _data: cython.p_const_uchar
    _at: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _index: cython.longlong
    _base_ms: cython.longlong
    _oldest_ms: cython.longlong
    _newest_ms: cython.longlong
    _keyless: cython.longlong
    _problem: cython.uint
    _number: cython.longlong

    def __init__(self) -> None:
        self._at = self._limit = self._end = 0
        self._index = self._keyless = self._number = self._base_ms = 0
        self._oldest_ms, self._newest_ms = INT64_MAX, NO_TIMESTAMP
        self._problem = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(self, count: cython.longlong) -> cython.int:
        while self._index < count:
            if cython.compiled:
                self._skip_plain(count)
                if self._index == count:
                    break
            if not self._careful():
                return 0
            self._index += 1
        if self._at != self._end:
            return self._fail(BODY_END, self._end - self._at)
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _careful(self) -> cython.int:
        """Walk one record of any kind. Return 0 if it is invalid."""
        length: cython.longlong
        delta: cython.longlong
        count: cython.longlong
        is_keyless: cython.bint
        self._limit = self._end
        length = self._varint(32)
        if length < RECORD_BYTES_MIN - 1 or length > self._end - self._at:
            return self._fail(RECORD_LENGTH, length)
        self._limit = self._at + length
        if self._data[self._at]:
            return self._fail(ATTRIBUTES, self._data[self._at])
        self._at += 1
        delta = self._varint(64)
        if (delta > 0 and self._base_ms > INT64_MAX - delta) or (delta < 0 and self._base_ms < -INT64_MAX - 1 - delta):
            return self._fail(TIME, delta)
        count = self._varint(32)
        if count != self._index:
            return self._fail(OFFSET, count)
        is_keyless = self._skip() < 0
        self._skip()
        if not self._skip_headers():
            return 0
        if self._at != self._limit:
            return self._fail(LEFT_OVER, self._limit - self._at)
        if self._problem:
            return 0
        self._keyless += is_keyless
        delta += self._base_ms
        if delta != NO_TIMESTAMP:
            self._oldest_ms = min(self._oldest_ms, delta)
            self._newest_ms = max(self._newest_ms, delta)
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_headers(self) -> cython.int:
        """Walk the headers of the record. Return 0 if they are invalid."""
        count: cython.longlong = self._varint(32)
        if count < 0 or count > (self._limit - self._at) // HEADER_BYTES_MIN:
            return self._fail(HEADER_COUNT, count)
        while count > 0 and not self._problem:
            if self._skip() < 0:
                return self._fail(HEADER_KEY, 0)
            self._skip()
            count -= 1
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail(self, problem: cython.uint, number: cython.longlong) -> cython.int:
        """Note the first problem of the walk."""
        if not self._problem:
            self._problem, self._number = problem, number
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip(self) -> cython.longlong:
        """Skip a length and as many bytes. Return the length, which is -1 for null."""
        size: cython.longlong = self._varint(32)
        if size < -1 or size > self._limit - self._at:
            self._fail(LENGTH, size)
            return 0
        if size > 0:
            self._at += size
        return size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _varint(self, bits: cython.int) -> cython.longlong:
        """Read a number within the record. Note a problem and return 0 if it is not valid."""
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        shift: cython.int = 0
        while self._at < self._limit:
            byte = self._data[self._at]
            self._at += 1
            if shift + 7 > bits and byte >> (bits - shift):
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        return self._fail(NUMBER, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip_plain(self, count: cython.longlong) -> cython.int:
        """Walk records up to the first one that is not plain, or that ends near the end of the body.

        A plain record has small numbers, few headers and no problem. Compiled only.
        """
        data: cython.p_const_uchar = self._data
        at: cython.Py_ssize_t = self._at
        room: cython.Py_ssize_t = self._end - PLAIN_MARGIN
        index: cython.longlong = self._index
        keyless: cython.longlong = self._keyless
        oldest_ms: cython.longlong = self._oldest_ms
        newest_ms: cython.longlong = self._newest_ms
        time_ms: cython.longlong = 0
        is_keyless: cython.longlong = 0
        limit: cython.Py_ssize_t
        if self._base_ms >= PLAIN_TIME_MAX or self._base_ms <= -PLAIN_TIME_MAX:
            return 0
        while index < count and at < room:
            limit = _plain_end(data, at, room, index, cython.address(time_ms), cython.address(is_keyless))
            if not limit:
                break
            at = limit
            index += 1
            keyless += is_keyless
            time_ms += self._base_ms
            if time_ms != NO_TIMESTAMP:
                oldest_ms = min(oldest_ms, time_ms)
                newest_ms = max(newest_ms, time_ms)
        self._at, self._index, self._keyless = at, index, keyless
        self._oldest_ms, self._newest_ms = oldest_ms, newest_ms
        return 0


# The functions below are used by compiled code only.


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
def _behind(data: cython.p_const_uchar, at: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position after a field with a length, negated if it is null.

    It is behind `limit` if the field is not plain or too long for its record.
    """
    number: cython.uint = 0
    size: cython.Py_ssize_t = _small(data + at, cython.address(number))
    if number == 1:
        return -(at + size)
    if not size or number & 1 or (number >> 1) > limit - at - size:
        return limit + 1
    return at + size + (number >> 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _plain_end(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
    index: cython.longlong,
    time: cython.p_longlong,
    is_keyless: cython.p_longlong,
) -> cython.Py_ssize_t:
    """Return the end of the record at `at` if it is plain, ends before `room` and has the offset delta `index`.

    Set `time` to its timestamp delta, and `is_keyless` to 1 if it has no key. Return 0 for any other record.
    """
    number: cython.uint = 0
    size: cython.Py_ssize_t = _small(data + at, cython.address(number))
    limit: cython.Py_ssize_t
    headers: cython.int
    at += size
    if not size or number & 1 or (number >> 1) < RECORD_BYTES_MIN - 1 or (number >> 1) > room - at or data[at]:
        return 0
    limit = at + (number >> 1)
    size = _small(data + at + 1, cython.address(number))
    if not size:
        return 0
    time[0] = cython.cast(cython.longlong, number >> 1) ^ -cython.cast(cython.longlong, number & 1)
    at += 1 + size
    size = _small(data + at, cython.address(number))
    if not size or number != index << 1:
        return 0
    at = _behind(data, at + size, limit)
    is_keyless[0] = at < 0
    at = _behind(data, at if at >= 0 else -at, limit)
    at = at if at >= 0 else -at
    if at >= limit or data[at] & 0x81:
        return 0
    headers = data[at] >> 1
    at += 1
    while headers > 0:
        at = _behind(data, at, limit)
        if at < 0 or at > limit:
            return 0
        at = _behind(data, at, limit)
        at = at if at >= 0 else -at
        headers -= 1
    return limit if at == limit else 0
