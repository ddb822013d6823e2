"""Distributes the rows of a chunk over partitions. Callers hold the lock, because receipts may be read meanwhile."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from millstream.model.message_id import MADE_PREFIX
from millstream.records.batch import decode_batch
from millstream.sdk.producing.batch_compression import BatchCompressor
from millstream.sdk.producing.batches import encoded_parts, parts
from millstream.sdk.producing.chunk import ProducerBatch, ProducerChunk
from millstream.sdk.producing.row_partitioning import shares, sorted_by_key


def whole_batch(chunk: ProducerChunk, partition: int) -> ProducerBatch:
    """Put the whole chunk into one batch."""
    batch = ProducerBatch(chunk, partition, None, chunk.held_bytes)
    chunk.assign(batch)
    return batch


def split_columns(chunk: ProducerChunk, turn: int) -> list[ProducerBatch]:
    """Split a chunk of columns into batches. Rows without partition, hash, key and id go to partition `turn`."""
    found: dict[int, list[int]] | dict[int, range] = {turn: range(chunk.count)}
    if chunk.partitions or chunk.hashes or chunk.keys or chunk.ids:
        columns = (chunk.partitions, chunk.hashes, chunk.keys, chunk.ids)
        found = shares(chunk.count, *columns, chunk.partition_count, turn)
    pieces = [
        (partition, run)
        for partition, rows in found.items()
        for run in ([rows] if chunk.ids is None else runs(rows, chunk.ids))
    ]
    if len(pieces) == 1:
        return [whole_batch(chunk, pieces[0][0])]
    batches = [ProducerBatch(chunk, partition, list(rows), 0) for partition, rows in pieces]
    chunk.assign_ordered(None, batches)
    return _with_bytes(chunk, batches)


def split_table(chunk: ProducerChunk, turn: int) -> list[ProducerBatch]:
    """Split a chunk of table rows into batches. Rows without a key go to partition `turn`."""
    count = chunk.partition_count
    if chunk.partitions is not None:
        return [whole_batch(chunk, chunk.partitions[0])]
    if chunk.table.keys is None or count == 1:
        return [whole_batch(chunk, turn)]
    offsets, validity, first, data = chunk.table.keys
    end = chunk.start + chunk.count
    order, ends = sorted_by_key(offsets, validity, first, data, chunk.start, end, count, turn)
    batches = []
    for partition, (start, end) in enumerate(pairwise([0, *ends])):
        if end > start:
            batch = ProducerBatch(chunk, partition, None, 0)
            batch.start, batch.count = start, end - start
            batches.append(batch)
    chunk.assign_ordered(order, batches)
    return _with_bytes(chunk, batches)


def has_chosen_partition(batch: ProducerBatch) -> bool:
    """Return True if the caller chose the partitions of all messages of the batch."""
    chunk: ProducerChunk = batch.chunk
    if chunk.partitions is None or chunk.table is not None:
        return chunk.partitions is not None
    return all(chunk.partitions[row] is not None for row in batch.places())


async def redistribute(
    batch: ProducerBatch, *, partition_count: int, turn: int, compressor: BatchCompressor
) -> list[ProducerBatch]:
    """Distribute an encoded batch over a new number of partitions; returns the batches that replace it."""
    chunk: ProducerChunk = batch.chunk
    keys = await compressor.run(batch, partial(_keys, batch.encoded))
    while True:
        with chunk.receipt_waiters.lock:
            chunk.partition_count = partition_count
            decided = partitions, hashes, ids = _deciding_columns(batch)
        found = shares(batch.count, partitions, hashes, keys, ids, partition_count, turn)
        positions = list(found.values())
        encoded = await compressor.run(batch, partial(encoded_parts, batch, positions))
        with chunk.receipt_waiters.lock:
            if _deciding_columns(batch) == decided:  # An id read meanwhile would also decide.
                return parts(batch, positions, encoded, list(found))


def _keys(encoded: bytearray) -> list[bytes | None]:
    return [record.key for record in decode_batch(encoded)]


def _deciding_columns(batch: ProducerBatch) -> tuple[list[Any] | None, ...]:
    """Return the partitions, hashes and ids of the batch's rows, which decide their partition as the key does."""
    chunk: ProducerChunk = batch.chunk
    rows = batch.places()
    return tuple(
        None if column is None else [column[row] for row in rows]
        for column in (chunk.partitions, chunk.hashes, chunk.ids)
    )


def _with_bytes(chunk: ProducerChunk, batches: list[ProducerBatch]) -> list[ProducerBatch]:
    """Divide the chunk's `held_bytes` among its batches."""
    for batch in batches:
        batch.held_bytes = chunk.held_bytes * batch.count // chunk.count
    batches[-1].held_bytes += chunk.held_bytes - sum(batch.held_bytes for batch in batches)
    return batches


def runs(rows: Sequence[int], ids: Sequence[bytes | None]) -> list[Sequence[int]]:
    """Split rows into runs that may share a batch.

    Rows with and without ids go into separate batches. A batch has each id once. A made id belongs to a retry and goes
    into a batch alone.
    """
    cuts = [0]
    seen: set[bytes] = set()
    for at, row in enumerate(rows):
        own = ids[row]
        before = ids[rows[at - 1]] if at else None
        is_alone = any(each is not None and each.startswith(MADE_PREFIX) for each in (own, before))
        if at and ((own is None) != (before is None) or is_alone or own in seen):
            cuts.append(at)
            seen.clear()
        if own is not None:
            seen.add(own)
    return [rows[start:end] for start, end in pairwise([*cuts, len(rows)])]
