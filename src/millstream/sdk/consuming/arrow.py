"""Portions as Arrow record batches. Imports PyArrow, so only those import this who want it."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from millstream.records.arrow import SCHEMA as RECORDS
from millstream.records.arrow import Arrays, decode_to_arrays
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.partition_reader import FetchedChunk

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        RECORDS.field("offset"),
        RECORDS.field("timestamp"),
        RECORDS.field("key"),
        RECORDS.field("value"),
        RECORDS.field("headers"),
    ]
)
"""The topic is stored once for each record batch."""

SHARED_ROWS_MAX = 128 * 1024
"""Of larger record batches nothing is kept for those to come: a few compressed bytes can be millions of rows."""


def next_record_batch(hand: DeliveredBuffer) -> pa.RecordBatch | None:
    """The next portion with messages in it; None where there is none here that can be opened."""
    while (found := hand.whole(as_record_batch)) is not None:
        portion, batch = found
        if batch is not None:
            hand.note(portion, batch.num_rows)
            return batch
    return None


def as_record_batch(portion: FetchedChunk) -> pa.RecordBatch | None:
    """Its messages, or None where it has none; CORRUPT_MESSAGE when they are damaged."""
    arrays = decode_to_arrays(portion.stored)
    rows = len(arrays.offset)
    if not rows:
        return None
    offsets = memoryview(arrays.offset.buffers()[1]).cast("B").cast("q")
    if offsets[0] < portion.offset or offsets[rows - 1] >= portion.next_offset:
        first = bisect_left(offsets, portion.offset, 0, rows)
        rows = bisect_left(offsets, portion.next_offset, 0, rows) - first
        if not rows:
            return None
        arrays = Arrays(*(array.slice(first, rows) for array in arrays))
    where = portion.reader.where
    shared_rows = 1 << (rows - 1).bit_length()
    is_shared = shared_rows <= SHARED_ROWS_MAX
    topics, partitions = _shared_places(*where, shared_rows) if is_shared else _places(*where, rows)
    columns = {"topic": topics.slice(0, rows), "partition": partitions.slice(0, rows)} | arrays._asdict()
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _places(topic: str, partition: int, rows: int) -> tuple[pa.Array, pa.Array]:
    """The columns that are the same in every row."""
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    topics = pa.DictionaryArray.from_arrays(zeros, pa.array([topic]))
    return topics, pa.repeat(pa.scalar(partition, pa.int32()), rows)


_shared_places = lru_cache(maxsize=16)(_places)
"""Record batches of one partition share them."""


def as_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """All of them together; without any, a table without rows."""
    return pa.Table.from_batches(batches, schema=SCHEMA)
