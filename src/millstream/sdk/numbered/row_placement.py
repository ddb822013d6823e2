"""Which partition each row of an Arrow record batch goes to, decided by the row alone and never by chance.

A row goes where its column `partition` says; else by its key, as the Java client does it; else to the partition whose
turn it is. Imports PyArrow, as all of this package's that touches rows.
"""

from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.arrow import Keys
from millstream.records.header import Bytes
from millstream.sdk.producing.row_partitioning import sorted_by_key

Placed = tuple[Bytes | None, list[int]]
"""The rows, those of partition 0 first and each partition's in order (None: as they are), and where each one's end."""


def place(batch: pa.RecordBatch, keys: Keys | None, count: int, turn: int) -> Placed:
    """The rows by partition, `count` of them; INVALID_REQUEST for a partition that is not there."""
    chosen = _chosen(batch, count)
    if chosen is None:
        return _by_key(batch.num_rows, keys, count, turn)
    if chosen.null_count:
        chosen = pc.coalesce(chosen, _column(*_by_key(batch.num_rows, keys, count, turn)))
    sizes = {row["values"]: row["counts"] for row in pc.value_counts(chosen).to_pylist()}
    order = pc.sort_indices(chosen)  # A stable sort, as PyArrow says: rows of one partition keep their order.
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
            text = f"a row is for partition {partition}; there are 0 to {count - 1}"
            raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    return chosen


def _by_key(rows: int, keys: Keys | None, count: int, turn: int) -> Placed:
    if keys is None or count == 1:
        return None, [0] * turn + [rows] * (count - turn)
    order, ends = sorted_by_key(*keys, 0, rows, count, turn)
    return memoryview(order), ends


def _column(order: Bytes | None, ends: list[int]) -> pa.Array:
    """Each row's partition, in the order of rows."""
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
