"""Chooses the partition of each row of an Arrow record batch, from the row alone and not by chance.

The column `partition` decides first, then the key, as in Kafka's Java client. Rows without both go to partition `turn`.
Like `row_packing`, this module imports PyArrow.
"""

from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.arrow import Keys
from millstream.records.header import Bytes
from millstream.sdk.producing.row_partitioning import sorted_by_key

Placed = tuple[Bytes | None, list[int]]
"""Row indexes sorted by partition (None: already sorted), and the end of each partition's share."""


def place(batch: pa.RecordBatch, keys: Keys | None, *, count: int, turn: int) -> Placed:
    """Sort rows by partition, for `count` partitions; raises INVALID_REQUEST for a partition out of range."""
    chosen = _chosen(batch, count)
    if chosen is None:
        return _by_key(batch.num_rows, keys, count=count, turn=turn)
    if chosen.null_count:
        chosen = pc.coalesce(chosen, _column(*_by_key(batch.num_rows, keys, count=count, turn=turn)))
    sizes = {row["values"]: row["counts"] for row in pc.value_counts(chosen).to_pylist()}
    order = pc.sort_indices(chosen)  # PyArrow's sort is stable, so rows of one partition keep their order.
    return _int64(order), list(accumulate(sizes.get(partition, 0) for partition in range(count)))


def _chosen(batch: pa.RecordBatch, count: int) -> "pa.Array | None":
    if "partition" not in batch.schema.names or not batch.num_rows:
        return None
    chosen = batch.column("partition").cast(pa.int64())
    if chosen.null_count == len(chosen):
        return None
    bounds = pc.min_max(chosen).as_py()
    for partition in bounds.values():
        if not 0 <= partition < count:
            text = f"a row has partition {partition}; the partitions are 0 to {count - 1}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    return chosen


def _by_key(rows: int, keys: Keys | None, *, count: int, turn: int) -> Placed:
    if keys is None or count == 1:
        return None, [0] * turn + [rows] * (count - turn)
    order, ends = sorted_by_key(*keys, 0, rows, count, turn)
    return memoryview(order), ends


def _column(order: Bytes | None, ends: list[int]) -> pa.Array:
    """Return the partition of each row, in row order."""
    sizes = [end - start for start, end in pairwise([0, *ends])]
    in_order = pa.concat_arrays(
        [pa.repeat(pa.scalar(partition, pa.int64()), size) for partition, size in enumerate(sizes)]
    )
    if order is None:
        return in_order
    return in_order.take(pc.sort_indices(pa.Array.from_buffers(pa.int64(), ends[-1], [None, pa.py_buffer(order)])))


def _int64(indices: pa.Array) -> memoryview:
    whole = memoryview(indices.buffers()[1]).cast("B")
    return whole[8 * indices.offset : 8 * (indices.offset + len(indices))].cast("q")
