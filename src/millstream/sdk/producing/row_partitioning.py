"""Chooses the partition of each row of a chunk. One source runs compiled or as plain Python, like `chunk`.

The first of these that a row has decides: its partition; its hash; its key, as in Kafka's Java client; its message id,
so that a retry reaches the partition of its first copy. The other rows of a chunk go to one partition, and those of the
next chunk to the next partition.
"""

# mypy: allow-untyped-decorators, allow-any-generics, no-warn-return-any, disable-error-code=valid-type
# mypy does not know Cython's decorators and C types. Functions that other modules call have Python annotations.

from __future__ import annotations

try:
    import cython
except ImportError:  # Cython is needed to compile, not to run.
    from millstream.records import _uncompiled as cython

from array import array
from typing import Any

Bytes = bytes | bytearray | memoryview

COMPILED = cython.compiled

SEED = cython.declare(cython.uint, 0x9747B28C)
MIX = cython.declare(cython.uint, 0x5BD1E995)
MASK = cython.declare(cython.ulonglong, 0xFFFFFFFF)
NO_BITS = b""
POSITIVE = cython.declare(cython.uint, 0x7FFFFFFF)


@cython.cfunc
@cython.inline
@cython.boundscheck(False)
@cython.exceptval(check=False)
def _hashed(data: cython.p_const_uchar, length: cython.Py_ssize_t) -> cython.uint:
    """Return the 32-bit MurmurHash2 with the Java client's seed."""
    mixed: cython.uint = SEED ^ cython.cast(cython.uint, length & MASK)
    word: cython.uint
    at: cython.Py_ssize_t = 0
    while length - at >= 4:
        word = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (cython.cast(cython.uint, data[at + 3]) << 24)
        word = (word * MIX) & MASK
        word = ((word ^ (word >> 24)) * MIX) & MASK
        mixed = ((mixed * MIX) & MASK) ^ word
        at += 4
    if length - at == 3:
        mixed ^= data[at + 2] << 16
    if length - at >= 2:
        mixed ^= data[at + 1] << 8
    if length - at >= 1:
        mixed = ((mixed ^ data[at]) * MIX) & MASK
    mixed = ((mixed ^ (mixed >> 13)) * MIX) & MASK
    return mixed ^ (mixed >> 15)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _by_bytes(data: bytes, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return (_hashed(data, len(data)) & POSITIVE) % count


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of `data` with the Java client's seed, as an unsigned number."""
    return _hashed(data, len(data))


def partition_for(key: bytes, count: cython.Py_ssize_t) -> int:
    """Return the partition of a message with this key, in a topic with `count` partitions."""
    return _by_bytes(key, count)


def shares(
    rows: cython.Py_ssize_t,
    partitions: list[int | None] | None,
    hashes: list[int | None] | None,
    keys: list[bytes | None] | None,
    ids: list[bytes | None] | None,
    count: cython.Py_ssize_t,
    turn: cython.Py_ssize_t,
) -> dict[int, list[int]]:
    """Return the rows of each partition, in order. Rows without partition, hash, key and id go to partition `turn`."""
    found: dict = {}
    row: cython.Py_ssize_t
    partition: cython.Py_ssize_t
    for row in range(rows):
        partition = turn
        if partitions is not None and partitions[row] is not None:
            partition = partitions[row]
        elif hashes is not None and hashes[row] is not None:
            chosen: Any = hashes[row]
            partition = chosen % count  # Python's modulo is never negative, and accepts any integer.
        elif keys is not None and keys[row] is not None:
            key: bytes = keys[row]
            partition = _by_bytes(key, count)
        elif ids is not None and ids[row] is not None:
            message_id: bytes = ids[row]
            partition = _by_bytes(message_id, count)
        share = found.get(partition)
        if share is None:
            found[partition] = share = []
        cython.cast(list, share).append(row)
    return found


def picked(column: list[Any] | None, rows: list[int] | None) -> Any:
    """Return the column's values of these rows; the whole column if `rows` is None."""
    if column is None or rows is None:
        return column
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    found: list = [None] * len(rows)
    for at in range(len(rows)):
        row = rows[at]
        found[at] = column[row]
    return found


def sorted_by_key(
    offsets: Bytes,
    validity: Bytes | None,
    first: cython.Py_ssize_t,
    data: Bytes,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    turn: cython.Py_ssize_t,
) -> tuple[array, list[int]]:
    """Sort rows `start` to `end` (exclusive) of an Arrow key column by partition, keeping their order.

    Returns the sorted row indexes and the end of each partition's share. Rows without a key go to partition `turn`.
    Raises ValueError if the column has fewer rows, or if its offsets are outside its data.
    """
    ends: cython.const[cython.longlong][::1] = offsets
    bits: cython.const[cython.uchar][::1] = NO_BITS if validity is None else validity
    bytes_of: cython.const[cython.uchar][::1] = data
    rows: cython.Py_ssize_t = end - start
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    low: cython.longlong
    high: cython.longlong
    partition: cython.Py_ssize_t
    limit: cython.Py_ssize_t = len(bytes_of)
    chosen = array("q", bytes(8 * rows))
    places = array("q", bytes(8 * (count + 1)))
    order = array("q", bytes(8 * rows))
    chosen_at: cython.longlong[::1] = chosen
    place_of: cython.longlong[::1] = places
    order_at: cython.longlong[::1] = order
    if first + end >= len(ends) or (validity is not None and (first + end + 7) >> 3 > len(bits)):
        raise ValueError(f"an Arrow column of keys has fewer than {end} rows")
    for row in range(rows):
        at = first + start + row
        partition = turn
        if validity is None or (bits[at >> 3] >> (at & 7)) & 1:
            low, high = ends[at], ends[at + 1]
            if low < 0 or high < low or high > limit:
                raise ValueError("an Arrow column's offsets are outside its data")
            partition = (_span(bytes_of, low, high) & POSITIVE) % count
        chosen_at[row] = partition
        place_of[partition + 1] += 1
    for partition in range(count):
        place_of[partition + 1] += place_of[partition]
    for row in range(rows):
        partition = chosen_at[row]
        order_at[place_of[partition]] = start + row
        place_of[partition] += 1
    return order, places.tolist()[:count]


@cython.cfunc
@cython.inline
@cython.boundscheck(False)
@cython.exceptval(check=False)
def _span(data: cython.const[cython.uchar][::1], start: cython.longlong, end: cython.longlong) -> cython.uint:
    if cython.compiled:
        return _hashed(cython.address(data[start]) if end > start else cython.NULL, end - start)
    return _hashed(data[start:end], end - start)
