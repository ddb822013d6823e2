"""DataFrames to topics, as tables or as streams: the driver checks, the tasks write.

Spark makes a writer on the driver for every batch and sends it to the tasks; nothing is remembered in it. Which batch
of which query a task belongs to, Spark tells the task itself.
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
"""What Spark tells the tasks of a stream."""


@dataclass
class TaskCommit(WriterCommitMessage):
    handle: Handle


def target_of(options: SinkOptions, schema: "StructType") -> SinkTarget:
    """Where the rows go; INVALID_SETTING for rows that cannot be written, and what stands against the topic."""
    check_columns(schema, has_topic=options.topic is not None)
    partitions = None
    if options.topic is not None:
        partitions = _partitions(client_of(options.bootstrap), options.topic)
    return SinkTarget(options.topic, partitions, options.compression, options.row_order is RowOrder.SORTED)


def _partitions(client: "Client", topic: str) -> int:
    """How many there are now; a client that has written before remembers how many there were then."""
    view = client.metadata(topic).topics.get(topic)
    if view is None or view.error_number:
        view = client.describe_topic(topic, auto_create=True)
    return len(view.partitions)


class StreamSink(DataSourceStreamArrowWriter):
    """A batch that is repeated adds what is missing of it, as long as its rows and their order are the same."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._bootstrap = options.bootstrap
        self._target = target_of(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query is not None, "Spark tells the tasks of a stream whose they are"
        assert batch is not None, "and of which batch"
        identity = TaskIdentity(query, int(batch), task.partitionId())
        return _written(self._bootstrap, self._target, identity, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        publish(_handles(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        drop(_handles(messages))


class BatchSink(DataSourceArrowWriter):
    """With a `txnId`, whoever writes again under it adds what is missing; without, tasks that fail write again."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._bootstrap = options.bootstrap
        self._txn_id = options.txn_id
        self._target = target_of(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        task = _task()
        identity = None
        if self._txn_id is not None:
            # Within foreachBatch, the same name is used in every batch of the query.
            query, batch = task.getLocalProperty(QUERY) or "", task.getLocalProperty(BATCH) or "0"
            identity = TaskIdentity(f"{query}\0{self._txn_id}", int(batch), task.partitionId())
        return _written(self._bootstrap, self._target, identity, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publish(_handles(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        drop(_handles(messages))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    return task


def _written(
    bootstrap: str, target: SinkTarget, identity: TaskIdentity | None, task: int, batches: "Iterator[pa.RecordBatch]"
) -> TaskCommit:
    with TaskStage.open(client_of(bootstrap), target, identity, task) as stage:
        for batch in in_order_of_content(batches) if target.is_sorted else batches:
            stage.write(batch)
        return TaskCommit(stage.seal())


def _handles(messages: Sequence[WriterCommitMessage | None]) -> list[Handle]:
    """Of tasks that failed there is none."""
    return [message.handle for message in messages if isinstance(message, TaskCommit)]
