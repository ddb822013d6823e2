"""Fetches the ranges of a task as Arrow record batches, on the executor."""

import gc
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.columns import ArrowColumns
from millstream.spark.connections import client_of
from millstream.spark.options import DataLoss, SourceOptions
from millstream.spark.reading.planning import Range
from millstream.spark.reading.reachable_ranges import ADVICE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millstream.sdk.sync.client import Client
    from millstream.sdk.sync.consumer import Consumer

STALL_S = 60.0
"""Maximum time without messages from a range that the driver has planned."""


def fetch(ranges: Sequence[Range], options: SourceOptions, schema: "StructType") -> Iterator[pa.RecordBatch]:
    """Yields every message of the ranges once, ordered by topic, partition and offset.

    A repeated task yields the same rows in the same order. For that, several ranges of a topic, which are small, are
    collected before they are sorted.

    Raises OFFSET_OUT_OF_RANGE, under dataLoss=fail, if messages expired since the driver planned the batch;
    UNKNOWN_TOPIC_ID if the topic was recreated; REQUEST_TIMED_OUT if no messages arrive for `STALL_S`.
    """
    columns = ArrowColumns(schema, options.values)
    for topic, some in groupby(sorted(ranges), attrgetter("topic")):
        batches = _fetch_topic(topic, found := list(some), options, columns.needs)
        for batch in batches if len(found) == 1 else sorted(batches, key=_partition):
            yield columns.of(batch)
            _settle()


@cache
def _settle() -> None:
    """Exempts everything that is loaded by now from garbage collection, once per process, after its first batch.

    Spark collects garbage after every task and would scan all of it each time, at a quarter of the worker's reading
    cost.
    """
    gc.freeze()


def _fetch_topic(
    topic: str, ranges: Sequence[Range], options: SourceOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    client = client_of(options.bootstrap)
    if options.archive is None:
        return fetch_records(client, topic, ranges, may_fail=options.data_loss is DataLoss.FAIL)
    from millstream.spark.archive.archive_and_log import read_history

    return read_history(client, topic, ranges, options, names)


def _partition(batch: pa.RecordBatch) -> int:
    number: int = batch.column("partition")[0].as_py()
    return number


def fetch_records(client: "Client", topic: str, ranges: Sequence[Range], *, may_fail: bool) -> Iterator[pa.RecordBatch]:
    """Yields the messages of these ranges of a topic as the SDK returns them, in order within each partition.

    If messages no longer exist: OFFSET_OUT_OF_RANGE if `may_fail`, else reading continues at the next available offset.
    """
    view = client.metadata([topic]).topics.get(topic)
    if view is None or view.topic_id != ranges[0].topic_id:
        text = f"topic {topic!r} was deleted or recreated while it was read; {ADVICE}"
        raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, text)
    consumer = client.consumer(
        topic,
        partitions=[each.partition for each in ranges],
        start={each.where: each.start for each in ranges},
        stop={each.where: each.end for each in ranges},
        out_of_range="error" if may_fail else "nearest",
    )
    with consumer:
        while (batch := consumer.poll_arrow(timeout=STALL_S)) is not None:
            yield batch
        _check_finished(consumer, ranges)


def _check_finished(consumer: "Consumer", ranges: Sequence[Range]) -> None:
    """Raises REQUEST_TIMED_OUT if the consumer stopped before the end of a range."""
    for each in ranges:
        position = consumer.position(each.topic, each.partition)
        if position is None or position < each.end:
            text = f"{each.where}: no messages for {STALL_S:.0f} s at offset {position}; the range ends at {each.end}"
            raise MillstreamError(ErrorCode.REQUEST_TIMED_OUT, text)
