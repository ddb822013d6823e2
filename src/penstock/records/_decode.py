"""Takes the records out of an uncompressed batch body; see `penstock.records` for the format.

One source, two lives: compiled by Cython it runs as C, otherwise as the Python it is. So it is written in what both
understand, and whatever is read here has been bounded first: every field must end within its record, every record
within the body, and no count is believed that the bytes at hand could not hold.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from penstock.records import _uncompiled as cython

from penstock.records.header import RECORD_BYTES_MIN, CorruptBatch
from penstock.records.record import Record

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize

COMPILED = cython.compiled

_INT64_MAX: cython.longlong = 0x7FFFFFFFFFFFFFFF
_HEADER_BYTES_MIN: cython.Py_ssize_t = 2
_new = tuple.__new__


@cython.final
@cython.cclass
class Reader:
    """Walks over the fields of records; nothing is read beyond the record that is open."""

    _data: cython.const[cython.uchar][::1]
    _position: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _end: cython.Py_ssize_t

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data
        self._position = 0
        self._limit = self._end = len(data)

    @cython.cfunc
    @cython.inline
    def varint(self) -> cython.longlong:
        """A number of up to 32 bits."""
        byte: cython.ulonglong
        if self._position >= self._limit:
            raise CorruptBatch(f"a field runs over the end of its record at byte {self._position}")
        byte = self._data[self._position]
        if byte < 0x80:
            self._position += 1
            return (byte >> 1) ^ -(byte & 1)
        return self._long_varint(32)

    @cython.cfunc
    @cython.inline
    def varlong(self) -> cython.longlong:
        """A number of up to 64 bits."""
        return self._long_varint(64)

    @cython.cfunc
    def _long_varint(self, bits: cython.int) -> cython.longlong:
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
    @cython.inline
    def size(self) -> cython.Py_ssize_t:
        """The length of the bytes that follow, known to be there; -1 for null."""
        size: cython.longlong = self.varint()
        if size < -1 or size > self._limit - self._position:
            raise CorruptBatch(
                f"a length of {size} is given where {self._limit - self._position} bytes are left, "
                f"at byte {self._position}"
            )
        return size

    @cython.cfunc
    @cython.inline
    def blob(self) -> object:
        """The bytes that follow, or None for null."""
        size: cython.Py_ssize_t = self.size()
        if size < 0:
            return None
        return self.take(size)

    @cython.cfunc
    @cython.inline
    def take(self, size: cython.Py_ssize_t) -> bytes:
        """The next `size` bytes, which the caller knows to be there."""
        start: cython.Py_ssize_t = self._position
        if size == 0:
            return b""
        self._position += size
        if cython.compiled:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(self._data[start])), size)
        return bytes(self._data[start : start + size])

    @cython.cfunc
    @cython.inline
    def open_record(self) -> cython.void:
        """Enter the next record: its length bounds what is read until `close_record`."""
        length: cython.longlong
        self._limit = self._end
        length = self.varint()
        if length < RECORD_BYTES_MIN - 1 or length > self._end - self._position:
            raise CorruptBatch(
                f"a record length of {length} is given where {self._end - self._position} bytes are left, "
                f"at byte {self._position}"
            )
        self._limit = self._position + length
        self._position += 1

    @cython.cfunc
    @cython.inline
    def close_record(self) -> cython.void:
        """Leave the record, which must have been read to its end."""
        if self._position != self._limit:
            raise CorruptBatch(f"a record goes on after its last field at byte {self._position}")

    @cython.cfunc
    def header_count(self) -> cython.Py_ssize_t:
        """How many headers follow; never more than can be there."""
        count: cython.longlong = self.varint()
        if count < 0 or count > (self._limit - self._position) // _HEADER_BYTES_MIN:
            raise CorruptBatch(
                f"{count} headers are announced where {self._limit - self._position} bytes are left, "
                f"at byte {self._position}"
            )
        return count

    @cython.cfunc
    def header_key_size(self) -> cython.Py_ssize_t:
        """The length of a header's key, which cannot be null."""
        size: cython.Py_ssize_t = self.size()
        if size < 0:
            raise CorruptBatch(f"a header has no key at byte {self._position}")
        return size

    @cython.cfunc
    def headers(self) -> tuple:
        """All headers of the record; a key that is not UTF-8 is shown with replacement characters, as Java does."""
        count: cython.Py_ssize_t = self.header_count()
        headers: list = []
        if count == 0:
            return ()
        for _ in range(count):
            key = self.take(self.header_key_size()).decode("utf-8", "replace")
            headers.append((key, self.blob()))
        return tuple(headers)

    @cython.cfunc
    def finish(self) -> cython.void:
        """After the last record the body must end."""
        if self._position != self._end:
            raise CorruptBatch(f"{self._end - self._position} bytes follow the last record")


@cython.cfunc
@cython.inline
def _moved(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """A record's time, which must be one."""
    if (delta > 0 and base > _INT64_MAX - delta) or (delta < 0 and base < -_INT64_MAX - 1 - delta):
        raise CorruptBatch(f"a record's time is {delta} ms from {base}, which is beyond all time")
    return base + delta


@cython.cfunc
def _check_count(count: cython.Py_ssize_t, size_bytes: cython.Py_ssize_t) -> cython.void:
    if count < 0 or count > size_bytes // RECORD_BYTES_MIN:
        raise CorruptBatch(f"{count} records do not fit into {size_bytes} bytes")


@cython.cfunc
@cython.inline
def _offset_delta(reader: Reader, last_offset_delta: cython.longlong) -> cython.longlong:
    """A record's place in the batch, which must be within it."""
    delta: cython.longlong = reader.varint()
    if delta < 0 or delta > last_offset_delta:
        raise CorruptBatch(f"a record's offset delta {delta} is not within 0 and {last_offset_delta}")
    return delta


def decode_records(
    data: bytes | bytearray | memoryview,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    last_offset_delta: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: int | None,
) -> list[Record]:
    """The `count` records of a batch body; `append_timestamp`, when there is one, is the time of all of them."""
    reader: Reader = Reader(data)
    records: list = []
    offset: cython.longlong
    timestamp: cython.longlong
    _check_count(count, len(data))
    for _ in range(count):
        reader.open_record()
        timestamp = _moved(base_timestamp, reader.varlong())
        offset = base_offset + _offset_delta(reader, last_offset_delta)
        key = reader.blob()
        value = reader.blob()
        headers = reader.headers()
        reader.close_record()
        time = timestamp if append_timestamp is None else append_timestamp
        records.append(_new(Record, (offset, time, key, value, headers)))
    reader.finish()
    return records
