"""Writes DataFrames to topics, as tables or as streams: the driver checks, the tasks write.

Spark creates a writer on the driver for every batch and pickles it for the tasks, so it keeps no state. Spark gives
each task the ids of its query and batch as local properties.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.spark.connections import client_of
from millstream.spark.options import RowOrder, SinkOptions
from millstream.spark.writing.sink_columns import check_columns
from millstream.spark.writing.task_writes import (
    Handle,
    SinkTarget,
    TaskIdentity,
    TaskStage,
    drop,
    in_order_of_content,
    publish,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millstream.sdk.sync.client import Client

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a stream."""


@dataclass
class TaskCommit(WriterCommitMessage):
    """A task's report to the driver that its rows are written."""

    handle: Handle


def target_of(options: SinkOptions, schema: "StructType") -> SinkTarget:
    """Returns where the rows go. Raises INVALID_SETTING for invalid columns, and the broker's error for the topic."""
    check_columns(schema, has_topic=options.topic is not None)
    partitions = None
    if options.topic is not None:
        partitions = _partitions(client_of(options.bootstrap), options.topic)
    return SinkTarget(options.topic, partitions, options.compression, options.row_order is RowOrder.SORTED)


def _partitions(client: "Client", topic: str) -> int:
    """Returns the topic's current number of partitions, from the broker: the client may have an older number cached."""
    view = client.metadata(topic).topics.get(topic)
    if view is None or view.error_number:
        view = client.describe_topic(topic, auto_create=True)
    return len(view.partitions)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.

    A repeated batch adds only its missing rows, if rows and their order are the same.
    """

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._bootstrap = options.bootstrap
        self._target = target_of(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query is not None, "Spark sets the query id for the tasks of a stream"
        assert batch is not None, "Spark sets the batch id for the tasks of a stream"
        identity = TaskIdentity(query, int(batch), task.partitionId())
        return _write_task(self._bootstrap, self._target, identity, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        publish(_handles(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        drop(_handles(messages))


class BatchSink(DataSourceArrowWriter):
    """Writes a table.

    Under a `txnId` a repeated write adds only its missing rows; without one, retried tasks write again.
    """

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._bootstrap = options.bootstrap
        self._txn_id = options.txn_id
        self._target = target_of(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        task = _task()
        identity = None
        if self._txn_id is not None:
            # Within foreachBatch, every batch of the query uses the same txnId.
            query, batch = task.getLocalProperty(QUERY) or "", task.getLocalProperty(BATCH) or "0"
            identity = TaskIdentity(f"{query}\0{self._txn_id}", int(batch), task.partitionId())
        return _write_task(self._bootstrap, self._target, identity, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publish(_handles(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        drop(_handles(messages))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls write in tasks only"
    return task


def _write_task(
    bootstrap: str, target: SinkTarget, identity: TaskIdentity | None, task: int, batches: "Iterator[pa.RecordBatch]"
) -> TaskCommit:
    with TaskStage.open(client_of(bootstrap), target, identity, task) as stage:
        for batch in in_order_of_content(batches) if target.is_sorted else batches:
            stage.write(batch)
        return TaskCommit(stage.seal())


def _handles(messages: Sequence[WriterCommitMessage | None]) -> list[Handle]:
    """Returns the handles of the tasks that succeeded."""
    return [message.handle for message in messages if isinstance(message, TaskCommit)]
