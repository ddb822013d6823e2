"""Tests chunks as Arrow record batches: their content, and the memory that stays allocated."""

import pyarrow as pa
import pytest

from millstream.model.names import TopicPartition
from millstream.records.batch import encode_batch
from millstream.sdk.consuming.arrow import SHARED_ROWS_MAX, as_record_batch
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed


def chunk_of(where: TopicPartition, rows: int) -> FetchedChunk:
    """Make a chunk of empty messages, which compress to very few bytes."""
    stored = memoryview(encode_batch([None] * rows, timestamps=1, compression="zstd"))
    return FetchedChunk(PartitionFeed(where, 0), 0, next_offset=rows, stored=stored, high_watermark=rows)


@pytest.mark.parametrize("rows", [1, 7, 8, SHARED_ROWS_MAX, SHARED_ROWS_MAX + 1])
def test_every_row_has_its_topic_partition_and_offset(rows: int) -> None:
    for partition in (0, 1):
        batch = as_record_batch(chunk_of(TopicPartition("orders", partition), rows))
        assert batch is not None
        assert batch.column("topic").unique().to_pylist() == ["orders"]
        assert batch.column("partition").unique().to_pylist() == [partition]
        assert batch.column("offset").to_pylist() == list(range(rows))


def test_columns_of_millions_of_rows_are_not_cached() -> None:
    before_bytes = pa.total_allocated_bytes()
    for partition in range(4):
        assert as_record_batch(chunk_of(TopicPartition("bombs", partition), 1_000_000)) is not None
    assert pa.total_allocated_bytes() - before_bytes < 1_000_000
