"""Validates and stamps the usual batches of producers, in one pass, on the broker's fast path.

The source also runs as plain Python, as in `record_decoder`. For small batches this is most of the cost apart from
system calls. An unusual batch is only reported: the caller finds out what is wrong with it, or accepts it.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# Cython's decorators and C types mean nothing to mypy; what other modules call is annotated in its terms.

from __future__ import annotations

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from millstream.records import header as _header
from millstream.records.checksum import crc32c
from millstream.records.header import LAYOUT, BatchHeader, stamp

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBUF_WRITABLE
    from cython.cimports.cpython.ref import Py_INCREF
    from cython.cimports.cpython.tuple import PyTuple_GET_ITEM, PyTuple_SET_ITEM
    from cython.cimports.millstream.records._python import (
        PyObject_GC_UnTrack,
        PyType_GenericAlloc,
        bytes_of,
        has_short_crc32c,
        short_crc32c,
    )

COMPILED = cython.compiled

# Checksums of up to this many bytes are computed here.
SHORT_CRC_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1024 if cython.compiled and has_short_crc32c() else 0)

HEADER = cython.declare(type, BatchHeader)
FIELDS = cython.declare(cython.Py_ssize_t, len(BatchHeader._fields))
HEADER_BYTES = cython.declare(cython.Py_ssize_t, _header.HEADER_BYTES)
LENGTH_END = cython.declare(cython.Py_ssize_t, _header.LENGTH_END)
CRC_START = cython.declare(cython.Py_ssize_t, _header.CRC_START)
RECORD_BYTES_MIN = cython.declare(cython.longlong, _header.RECORD_BYTES_MIN)
MAGIC = cython.declare(cython.longlong, _header.MAGIC)
BASE_OFFSET_MAX = cython.declare(cython.longlong, _header.BASE_OFFSET_MAX)
COMPRESSION_MASK = cython.declare(cython.longlong, _header.COMPRESSION_MASK)
COMPRESSION_MAX = cython.declare(cython.longlong, _header.COMPRESSION_MAX)
UNUSUAL = cython.declare(cython.longlong, ~_header.COMPRESSION_MASK)
_new = tuple.__new__


def usual_header(
    records: memoryview,
    bytes_max: cython.longlong,
    now_ms: cython.longlong,
    before_max_ms: cython.longlong,
    after_max_ms: cython.longlong,
    ids: cython.longlong = 0,
) -> BatchHeader | None:
    """Return the header if `records` is one whole, undamaged and usual batch; otherwise return None.

    A usual batch has at most `bytes_max` bytes, as many records as offsets, and no attributes but a compression and
    `ids`. Its producer id is -1, or epoch and sequence number are valid too. Its timestamps are absent, or at most
    `before_max_ms` before and `after_max_ms` after `now_ms`, which is not negative.
    """
    size: cython.Py_ssize_t = len(records)
    if size < HEADER_BYTES or size > bytes_max:
        return None
    base_offset: cython.longlong
    length: cython.longlong
    magic: cython.longlong
    crc: cython.uint
    attributes: cython.longlong
    last_delta: cython.longlong
    first_ms: cython.longlong
    newest_ms: cython.longlong
    producer_id: cython.longlong
    producer_epoch: cython.longlong
    sequence: cython.longlong
    count: cython.longlong
    if cython.compiled:
        data: cython.p_uchar = bytes_of(records, PyBUF_SIMPLE)
        base_offset, length, magic, crc = _int64(data, 0), _int32(data, 8), data[16], _uint32(data, 17)
        attributes, last_delta, first_ms = _int16(data, 21), _int32(data, 23), _int64(data, 27)
        newest_ms, producer_id, producer_epoch = _int64(data, 35), _int64(data, 43), _int16(data, 51)
        sequence, count = _int32(data, 53), _int32(data, 57)
    else:
        fields = LAYOUT.unpack_from(records)
        base_offset, length, _, magic, crc, attributes, last_delta, first_ms, newest_ms, *rest = fields
        producer_id, producer_epoch, sequence, count = rest
    compression: cython.longlong = attributes & COMPRESSION_MASK
    oldest_ms: cython.longlong = first_ms if first_ms < newest_ms else newest_ms
    if (
        magic != MAGIC
        or length + LENGTH_END != size
        or base_offset < 0
        or base_offset > BASE_OFFSET_MAX
        or last_delta < 0
        or count != last_delta + 1
        or attributes & UNUSUAL & ~ids
        or compression > COMPRESSION_MAX
        or (compression == 0 and count * RECORD_BYTES_MIN > size - HEADER_BYTES)
        or (producer_id >= 0 and (producer_epoch < 0 or sequence < 0))
        or oldest_ms < -1
        or (newest_ms >= 0 and newest_ms - now_ms > after_max_ms)
        or (oldest_ms >= 0 and now_ms - oldest_ms > before_max_ms)
    ):
        return None
    if not cython.compiled:
        return _new(BatchHeader, fields) if crc32c(records[CRC_START:]) == crc else None
    found: cython.uint
    if size - CRC_START <= SHORT_CRC_BYTES_MAX:
        found = short_crc32c(data + CRC_START, size - CRC_START)
    else:
        found = crc32c(records[CRC_START:])
    return _header_at(data) if found == crc else None


def placed(
    records: memoryview, header: BatchHeader, base_offset: cython.longlong, leader_epoch: cython.longlong
) -> BatchHeader:
    """Write offset and leader epoch into the batch in `records` that has this header. Return the new header."""
    if not cython.compiled:
        stamp(records, base_offset=base_offset, leader_epoch=leader_epoch)
        return _new(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))
    assert len(records) >= HEADER_BYTES, "it was found to be a batch before"
    assert isinstance(header, BatchHeader), "its fields are taken without asking"
    data: cython.p_uchar = bytes_of(records, PyBUF_WRITABLE)
    at: cython.Py_ssize_t
    for at in range(8):
        data[at] = (base_offset >> (56 - 8 * at)) & 0xFF
    for at in range(4):
        data[12 + at] = (leader_epoch >> (24 - 8 * at)) & 0xFF
    new: BatchHeader = PyType_GenericAlloc(HEADER, FIELDS)
    _set(new, 0, base_offset)
    _set(new, 1, cython.cast(object, PyTuple_GET_ITEM(header, 1)))
    _set(new, 2, leader_epoch)
    for at in range(3, FIELDS):
        _set(new, at, cython.cast(object, PyTuple_GET_ITEM(header, at)))
    PyObject_GC_UnTrack(cython.cast(cython.p_void, new))  # It holds numbers only.
    return new


# The functions below are used by compiled code only.


@cython.cfunc
def _header_at(data: cython.p_uchar) -> BatchHeader:
    header: BatchHeader = PyType_GenericAlloc(HEADER, FIELDS)
    _set(header, 0, _int64(data, 0))
    _set(header, 1, _int32(data, 8))
    _set(header, 2, _int32(data, 12))
    _set(header, 3, data[16])
    _set(header, 4, _uint32(data, 17))
    _set(header, 5, _int16(data, 21))
    _set(header, 6, _int32(data, 23))
    _set(header, 7, _int64(data, 27))
    _set(header, 8, _int64(data, 35))
    _set(header, 9, _int64(data, 43))
    _set(header, 10, _int16(data, 51))
    _set(header, 11, _int32(data, 53))
    _set(header, 12, _int32(data, 57))
    PyObject_GC_UnTrack(cython.cast(cython.p_void, header))  # It holds numbers only.
    return header


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.ulonglong = 0
    place: cython.Py_ssize_t
    for place in range(8):
        value = value << 8 | data[at + place]
    return cython.cast(cython.longlong, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.uint:
    value: cython.uint = 0
    place: cython.Py_ssize_t
    for place in range(4):
        value = value << 8 | data[at + place]
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.int:
    return cython.cast(cython.int, _uint32(data, at))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int16(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.short:
    return cython.cast(cython.short, data[at] << 8 | data[at + 1])


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _set(header: object, at: cython.Py_ssize_t, value: object) -> cython.int:
    Py_INCREF(value)
    PyTuple_SET_ITEM(header, at, value)
    return 0
