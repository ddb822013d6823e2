"""Portions as Arrow record batches: what is in them, and what is kept of them."""

from uuid import UUID

import pyarrow as pa
import pytest

from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.consuming.arrow import SHARED_ROWS_MAX, as_record_batch
from millstream.sdk.consuming.partition_reader import FetchedChunk, PartitionReader


def portion(where: TopicPartition, rows: int) -> FetchedChunk:
    """Of empty messages, compressed to next to nothing."""
    stored = memoryview(encode_batch([None] * rows, timestamps=1, compression="zstd"))
    return FetchedChunk(PartitionReader(where, 0, 0, UUID(int=1)), 0, rows, stored, rows)


@pytest.mark.parametrize("rows", [1, 7, 8, SHARED_ROWS_MAX, SHARED_ROWS_MAX + 1])
def test_every_row_says_where_it_comes_from(rows: int) -> None:
    for partition in (0, 1):
        batch = as_record_batch(portion(TopicPartition("orders", partition), rows))
        assert batch is not None
        assert batch.column("topic").unique().to_pylist() == ["orders"]
        assert batch.column("partition").unique().to_pylist() == [partition]
        assert batch.column("offset").to_pylist() == list(range(rows))


def test_of_millions_of_rows_nothing_stays_in_memory() -> None:
    before_bytes = pa.total_allocated_bytes()
    for partition in range(4):
        assert as_record_batch(portion(TopicPartition("bombs", partition), 1_000_000)) is not None
    assert pa.total_allocated_bytes() - before_bytes < 1_000_000
