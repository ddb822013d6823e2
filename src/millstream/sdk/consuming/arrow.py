"""Converts fetched chunks to Arrow record batches. Only code that needs Arrow imports this module; it loads PyArrow."""

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from functools import lru_cache

import pyarrow as pa

from millstream.records.arrow import SCHEMA as RECORDS
from millstream.records.arrow import Arrays, decode_to_arrays
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.feed.fetched_chunk import FetchedChunk

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
"""The topic column is dictionary-encoded, so a record batch stores the topic's name once."""

SHARED_ROWS_MAX = 128 * 1024
"""The topic and partition columns of larger record batches are not cached: a few compressed bytes can hold millions of
rows."""


def next_record_batch(delivered: DeliveredBuffer) -> pa.RecordBatch | None:
    """Return the messages of the next chunk as a record batch. Skips chunks without messages.

    None if the buffer is empty, or if its next chunk is damaged.
    """
    while (found := delivered.whole(as_record_batch)) is not None:
        chunk, batch = found
        if batch is not None:
            delivered.note(chunk, batch.num_rows)
            return batch
        delivered.begin()  # A chunk without messages need not be put back.
    return None


def as_record_batch(chunk: FetchedChunk) -> pa.RecordBatch | None:
    """Decode the messages of a chunk; None if it has none. Raises CORRUPT_MESSAGE if they are damaged."""
    if chunk.failure is not None:
        raise copy(chunk.failure)
    arrays = decode_to_arrays(chunk.stored)
    rows = len(arrays.offset)
    if not rows:
        return None
    offsets = memoryview(arrays.offset.buffers()[1]).cast("B").cast("q")
    if offsets[0] < chunk.offset or offsets[rows - 1] >= chunk.next_offset:
        first = bisect_left(offsets, chunk.offset, 0, rows)
        rows = bisect_left(offsets, chunk.next_offset, 0, rows) - first
        if not rows:
            return None
        arrays = Arrays(*(array.slice(first, rows) for array in arrays))
    where = chunk.where
    shared_rows = 1 << (rows - 1).bit_length()
    is_shared = shared_rows <= SHARED_ROWS_MAX
    topics, partitions = _shared_places(*where, shared_rows) if is_shared else _places(*where, rows)
    columns = {"topic": topics.slice(0, rows), "partition": partitions.slice(0, rows)} | arrays._asdict()
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _places(topic: str, partition: int, rows: int) -> tuple[pa.Array, pa.Array]:
    """Build the topic and partition columns, which have the same value in every row."""
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    topics = pa.DictionaryArray.from_arrays(zeros, pa.array([topic]))
    return topics, pa.repeat(pa.scalar(partition, pa.int32()), rows)


_shared_places = lru_cache(maxsize=16)(_places)
"""Caches these columns, so that record batches of one partition share them."""


def as_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Concatenate record batches into a table; no batches give a table without rows."""
    return pa.Table.from_batches(batches, schema=SCHEMA)
