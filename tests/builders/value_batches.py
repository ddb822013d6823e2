"""Builds record batches like those that the SDK passes to the Spark source."""

from collections.abc import Sequence

import pyarrow as pa


def value_batch(values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Build a batch of messages of partition 3 of the topic orders, from offset 100 on."""
    rows = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "topic": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["orders"])),
        "partition": pa.array([3] * rows, pa.int32()),
        "offset": pa.array(range(100, 100 + rows), pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
