"""Finds the last record of each key, for compaction, and the records without a key.

The source runs compiled or as plain Python, and C functions return 0, as in `record_decoder`; see `millstream.records`
for the format. Records are parsed only up to their keys and copied byte by byte, without creating objects. Every read
is bounded first: a field must end within its record, and a record within the body.

A key is identified by 96 bits of a 128-bit hash. Compiled, that is SipHash, implemented here. As plain Python it is
BLAKE2 from the standard library. The choice of the hash does not change any result.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

from hashlib import blake2b
from mmap import mmap

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from millstream.records.header import RECORD_BYTES_MIN as _RECORD_BYTES_MIN
from millstream.records.header import CorruptBatch

if cython.compiled:
    from cython.cimports.libc.string import memcpy

Bytes = bytes | bytearray | memoryview

COMPILED = cython.compiled
SLOT_BYTES = 16
"""The memory of a slot of an `OffsetMap`, used or free."""

RECORD_BYTES_MIN = cython.declare(cython.Py_ssize_t, _RECORD_BYTES_MIN)
WORDS = cython.declare(cython.Py_ssize_t, 2)
DISTANCE_MAX = cython.declare(cython.longlong, 0xFFFFFFFE)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
LOW = cython.declare(cython.ulonglong, 0xFFFFFFFF)
HIGH = cython.declare(cython.ulonglong, 0xFFFFFFFF00000000)
TIME_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5 + 10)  # Maximum growth of a record whose timestamp is rewritten.
KEYLESS_TOLD_MAX = cython.declare(cython.Py_ssize_t, 1000)


@cython.final
@cython.cclass
class RecordCursor:
    """Iterates over records. After `next`, its fields are those of the current record."""

    _data: cython.const[cython.uchar][::1]
    _position: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _following: cython.Py_ssize_t
    _last_delta: cython.longlong
    start: cython.Py_ssize_t
    time_delta: cython.longlong
    after_time: cython.Py_ssize_t
    offset_delta: cython.longlong
    key: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    has_value: cython.bint

    def __init__(self, data: Bytes, count: cython.Py_ssize_t, last_offset_delta: cython.longlong) -> None:
        if count < 0 or count > len(data) // RECORD_BYTES_MIN:
            raise CorruptBatch(f"{count} records do not fit into {len(data)} bytes")
        self._data = data
        self._position = self._following = self.start = self.after_time = self.key = 0
        self._limit = self._end = len(data)
        self._last_delta = last_offset_delta
        self.time_delta = self.offset_delta = 0
        self.key_size = -1
        self.has_value = False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next(self) -> cython.int:
        """Advance to the next record, and check that it ends within the body."""
        length: cython.longlong
        size: cython.longlong
        self._position = self.start = self._following
        self._limit = self._end
        length = self._number(32)
        if length < RECORD_BYTES_MIN - 1 or length > self._end - self._position:
            self._wrong("a record length of", length)
        self._limit = self._following = self._position + length
        self._position += 1
        self.time_delta = self._number(64)
        self.after_time = self._position
        self.offset_delta = self._number(32)
        if self.offset_delta < 0 or self.offset_delta > self._last_delta:
            self._wrong(f"an offset delta beyond {self._last_delta},", self.offset_delta)
        size = self._size()
        self.key = self._position
        self.key_size = size
        if size > 0:
            self._position += size
        self.has_value = self._size() >= 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self) -> cython.int:
        """Check that the body ends after the last record."""
        if self._following != self._end:
            raise CorruptBatch(f"{self._end - self._following} bytes follow the last record")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=True)
    def _size(self) -> cython.longlong:
        size: cython.longlong = self._number(32)
        if size < -1 or size > self._limit - self._position:
            self._wrong("a length of", size)
        return size

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _number(self, bits: cython.int) -> cython.longlong:
        value: cython.ulonglong = 0
        byte: cython.ulonglong
        shift: cython.int = 0
        while True:
            if self._position >= self._limit:
                raise CorruptBatch(f"a field runs over the end of its record at byte {self._position}")
            byte = self._data[self._position]
            self._position += 1
            if shift + 7 > bits and byte >> (bits - shift):
                raise CorruptBatch(f"a number has more than {bits} bits at byte {self._position}")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _wrong(self, what: str, number: cython.longlong) -> cython.int:
        raise CorruptBatch(f"{what} {number} is given at byte {self._position}")


@cython.final
@cython.cclass
class OffsetMap:
    """Maps each key to the offset of its last record, in a fixed amount of memory.

    It is a hash table of `slots` slots (a power of two) of two words: 64 bits of the key's hash, then 32 more of them
    above a 32-bit number. That number is the distance of the offset from `first_offset`, plus one; zero means free. A
    quarter of the slots always stays free, which keeps lookups short.
    """

    count: cython.Py_ssize_t
    first_offset: cython.longlong
    _words: cython.ulonglong[::1]
    _mask: cython.Py_ssize_t
    _most: cython.Py_ssize_t
    _low: cython.ulonglong
    _high: cython.ulonglong

    def __init__(self, slots: cython.Py_ssize_t, first_offset: cython.longlong) -> None:
        if slots < 4 or slots & (slots - 1):
            raise ValueError(f"{slots} is not a power of two, from 4 on")
        # The kernel allocates pages on first access. A bytearray would write all zeros at once and block other threads.
        self._words = memoryview(mmap(-1, slots * SLOT_BYTES)).cast("Q")
        self._mask = slots - 1
        self._most = slots - slots // 4
        self.count = 0
        self.first_offset = first_offset
        self._low = self._high = 0

    def __len__(self) -> int:
        return self.count

    def add(
        self,
        data: Bytes,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        from_offset: cython.longlong,
    ) -> int:
        """Add the records of a batch body from `from_offset` on. Return -1, or the first offset that did not fit.

        After CorruptBatch, the records before the damage have been added.
        """
        walk: RecordCursor = RecordCursor(data, count, last_offset_delta)
        offset: cython.longlong
        place: cython.Py_ssize_t
        for _ in range(count):
            walk.next()
            offset = base_offset + walk.offset_delta
            if walk.key_size < 0 or offset < from_offset:
                continue
            if offset - self.first_offset > DISTANCE_MAX - 1:
                return offset
            place = self._find(walk)
            if self._words[place + 1] == 0:
                if self.count >= self._most:
                    return offset
                self.count += 1
            self._words[place] = self._low
            self._words[place + 1] = (self._high & HIGH) | (offset - self.first_offset + 1)
        walk.finish()
        return -1

    def judge(
        self,
        data: Bytes,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        end_offset: cython.longlong,
        drop_tombstones: cython.bint,
    ) -> tuple[bytearray, int, int]:
        """Select the records of a batch body to keep: one byte per record (1: keep), their number and tombstones.

        Before `end_offset`, only the last record of each key is kept, and no record without a key. With
        `drop_tombstones`, records without a value are removed too. Records from `end_offset` on are all kept, and their
        tombstones are not counted.
        """
        walk: RecordCursor = RecordCursor(data, count, last_offset_delta)
        kept: bytearray = bytearray(count)
        marks: cython.uchar[::1] = kept
        index: cython.Py_ssize_t
        offset: cython.longlong
        keeps: cython.Py_ssize_t = 0
        tombstones: cython.Py_ssize_t = 0
        for index in range(count):
            walk.next()
            offset = base_offset + walk.offset_delta
            if offset < end_offset:
                if walk.key_size < 0 or (drop_tombstones and not walk.has_value) or self._is_past(walk, offset):
                    continue
                if not walk.has_value:
                    tombstones += 1
            marks[index] = 1
            keeps += 1
        walk.finish()
        return kept, keeps, tombstones

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _is_past(self, walk: RecordCursor, offset: cython.longlong) -> cython.int:
        """Return 1 if the key has a later record than the one at `offset`."""
        place: cython.Py_ssize_t = self._find(walk)
        distance: cython.longlong = self._words[place + 1] & LOW
        return distance != 0 and self.first_offset + distance - 1 > offset

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _find(self, walk: RecordCursor) -> cython.Py_ssize_t:
        """The slot of the record's key, or the free slot for it. Sets `_low` and `_high` to its hash."""
        place: cython.Py_ssize_t
        word: cython.ulonglong
        self._hash(walk)
        place = self._high & self._mask
        while True:
            word = self._words[place * WORDS + 1]
            if word == 0 or (self._words[place * WORDS] == self._low and word & HIGH == self._high & HIGH):
                return place * WORDS
            place = (place + 1) & self._mask

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _hash(self, walk: RecordCursor) -> cython.int:
        if cython.compiled:
            self._sip_hash(walk._data, walk.key, walk.key_size)
        else:
            digest = blake2b(walk._data[walk.key : walk.key + walk.key_size], digest_size=16).digest()
            self._low = int.from_bytes(digest[:8], "little")
            self._high = int.from_bytes(digest[8:], "little")

    @cython.cfunc
    @cython.boundscheck(False)  # The cursor has checked that the key is within the data.
    @cython.exceptval(-1, check=False)
    def _sip_hash(
        self, data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.int:
        """SipHash-2-4 with 128 bits, under a key of zeros."""
        v0: cython.ulonglong = 0x736F6D6570736575
        v1: cython.ulonglong = 0x646F72616E646F6D ^ 0xEE
        v2: cython.ulonglong = 0x6C7967656E657261
        v3: cython.ulonglong = 0x7465646279746573
        word: cython.ulonglong
        last: cython.ulonglong = cython.cast(cython.ulonglong, size) << 56
        at: cython.Py_ssize_t
        words: cython.Py_ssize_t = size >> 3
        rounds: cython.int
        turn: cython.Py_ssize_t
        for at in range(words << 3, size):
            last |= cython.cast(cython.ulonglong, data[start + at]) << (8 * (at & 7))
        # The words, then the remaining bytes with the length, then the two halves of the result.
        for turn in range(words + 3):
            rounds = 2
            word = 0
            if turn < words:
                memcpy(cython.address(word), cython.address(data[start + (turn << 3)]), 8)
            elif turn == words:
                word = last
            elif turn == words + 1:
                v2 ^= 0xEE
                rounds = 4
            else:
                self._low = v0 ^ v1 ^ v2 ^ v3
                v1 ^= 0xDD
                rounds = 4
            v3 ^= word
            for _ in range(rounds):
                v0 += v1
                v1 = (v1 << 13) | (v1 >> 51)
                v1 ^= v0
                v0 = (v0 << 32) | (v0 >> 32)
                v2 += v3
                v3 = (v3 << 16) | (v3 >> 48)
                v3 ^= v2
                v0 += v3
                v3 = (v3 << 21) | (v3 >> 43)
                v3 ^= v0
                v2 += v1
                v1 = (v1 << 17) | (v1 >> 47)
                v1 ^= v2
                v2 = (v2 << 32) | (v2 >> 32)
            v0 ^= word
        self._high = v0 ^ v1 ^ v2 ^ v3


def filter_records(
    data: Bytes,
    count: cython.Py_ssize_t,
    last_offset_delta: cython.longlong,
    kept: bytearray,
    time_shift: cython.longlong,
    prefix_bytes: cython.Py_ssize_t,
) -> tuple[bytearray, int]:
    """Encode a body of the records that `kept` marks, after `prefix_bytes` of free space.

    At least one record is marked. `time_shift` is added to the timestamp deltas.
    Return the buffer and the largest timestamp delta of its records.
    """
    walk: RecordCursor = RecordCursor(data, count, last_offset_delta)
    marks: cython.const[cython.uchar][::1] = kept
    grown: cython.Py_ssize_t = count * TIME_BYTES_MAX if time_shift else 0
    body: bytearray = bytearray(prefix_bytes + len(data) + grown)
    room: cython.uchar[::1] = body
    position: cython.Py_ssize_t = prefix_bytes
    index: cython.Py_ssize_t
    delta: cython.longlong
    largest: cython.longlong = -INT64_MAX
    if len(kept) != count:
        raise ValueError(f"there are {count} records and {len(kept)} marks")
    for index in range(count):
        walk.next()
        if not marks[index]:
            continue
        delta = _shifted(walk.time_delta, time_shift)
        largest = max(largest, delta)
        if time_shift == 0:
            position = _copy(walk._data, walk.start, walk._limit, room, position)
        else:
            position = _put_number(room, position, 1 + _number_size(delta) + walk._limit - walk.after_time)
            room[position] = 0
            position = _put_number(room, position + 1, delta)
            position = _copy(walk._data, walk.after_time, walk._limit, room, position)
    walk.finish()
    room = None
    del body[position:]
    return body, largest


def keyless_records(data: Bytes, count: cython.Py_ssize_t, last_offset_delta: cython.longlong) -> list[int]:
    """Return the indexes of the records without a key, at most KEYLESS_TOLD_MAX."""
    walk: RecordCursor = RecordCursor(data, count, last_offset_delta)
    index: cython.Py_ssize_t
    keyless: list = []
    for index in range(count):
        walk.next()
        if walk.key_size < 0 and len(keyless) < KEYLESS_TOLD_MAX:
            keyless.append(index)
    return keyless


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _shifted(delta: cython.longlong, shift: cython.longlong) -> cython.longlong:
    if (shift > 0 and delta > INT64_MAX - shift) or (shift < 0 and delta < -INT64_MAX - shift):
        raise CorruptBatch(f"a record's time delta {delta}, moved by {shift} ms, is beyond all time")
    return delta + shift


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _copy(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    room: cython.uchar[::1],
    position: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy the bytes from `start` to `end`, at least one, and return the position after the copy."""
    if end - start > len(room) - position:
        raise AssertionError("the buffer for an encoded batch is smaller than the batch")
    if cython.compiled:
        memcpy(cython.address(room[position]), cython.address(data[start]), end - start)
    else:
        room[position : position + end - start] = data[start:end]
    return position + end - start


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _number_size(value: cython.longlong) -> cython.Py_ssize_t:
    zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
    size: cython.Py_ssize_t = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=True)
def _put_number(room: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write a number, and return the position after it."""
    zigzag: cython.ulonglong = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        room[position] = (zigzag & 0x7F) | 0x80
        position += 1
        zigzag >>= 7
    room[position] = zigzag
    return position + 1
