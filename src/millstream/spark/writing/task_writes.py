"""Writes the rows of one task, seals them, and commits or aborts what the tasks of a batch have sealed.

Sealed rows are in their topics already, and readers can see them. So `publish` and `drop` do nothing. The numbered
writer ensures that a repeated task stores nothing twice: under the same name and epoch, with the same rows in the same
order, it adds only the missing rows. A stage that hides rows until they are published could replace this one without
changes on Spark's side.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.numbered.options import EPOCHS
from millstream.sdk.sync.client import Client
from millstream.sdk.sync.numbered_writer import NumberedWriter


class TaskIdentity(NamedTuple):
    """Identifies the rows of a task: the query, one of its batches, and one of that batch's tasks."""

    query: str
    batch: int
    task: int

    def name(self, topic: str) -> bytes:
        """Returns the name of this task's numbered writer for a topic; it stays the same for `EPOCHS` batches."""
        return "\0".join((self.query, topic, str(self.task), str(self.batch // EPOCHS))).encode()

    @property
    def epoch(self) -> int:
        return self.batch % EPOCHS


@dataclass(frozen=True, slots=True)
class Handle:
    """The sealed rows of a task: their number per topic."""

    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Destination of the rows. Picklable."""

    topic: str | None
    """None: each row names its topic."""
    partitions: int | None
    """Number of the topic's partitions that the driver saw, so that all tasks of a batch partition rows alike.

    None if `topic` is None.
    """
    compression: str
    is_sorted: bool


class TaskStage:
    """One attempt of one task, used as a context manager.

    If `seal` is not called, writes in flight are abandoned at exit.
    """

    def __init__(self, client: Client, target: SinkTarget, identity: TaskIdentity | None, turn: int) -> None:
        self._client = client
        self._target = target
        self._identity = identity
        self._turn = turn
        self._writers: dict[str, NumberedWriter] = {}
        self._stack = ExitStack()

    @classmethod
    def open(cls, client: Client, target: SinkTarget, identity: TaskIdentity | None, task: int) -> Self:
        """Returns a stage. Without an identity, a repeated task writes its rows again."""
        batch = 0 if identity is None else identity.batch
        return cls(client, target, identity, task + batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes these rows. Raises the errors of the numbered writer."""
        for topic, rows in self._by_topic(batch):
            self._writer(topic).write(rows)

    def seal(self) -> Handle:
        """Waits until all rows are stored, and returns their numbers."""
        return Handle({topic: writer.finish() for topic, writer in self._writers.items()})

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._target.topic is not None:
            yield self._target.topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, "the column topic of a row is null; every row must name a topic"
            )
        topics = pc.unique(column).to_pylist()
        for topic in topics:
            yield topic, batch if len(topics) == 1 else batch.filter(pc.equal(column, topic))

    def _writer(self, topic: str) -> NumberedWriter:
        writer = self._writers.get(topic)
        if writer is None:
            identity = self._identity
            made = self._client.numbered_writer(
                topic,
                None if identity is None else identity.name(topic),
                0 if identity is None else identity.epoch,
                partitions=self._target.partitions,
                turn=self._turn,
                compression=self._target.compression,
            )
            writer = self._writers[topic] = self._stack.enter_context(made)
        return writer


def publish(handles: Sequence[Handle]) -> None:
    """Does nothing: sealed rows are already visible to readers."""


def drop(handles: Sequence[Handle]) -> None:
    """Does nothing: sealing publishes the rows, so there are no unpublished rows to remove."""


def in_order_of_content(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields all rows, sorted by their content: the same rows come in the same order, whatever their input order."""
    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    keys = {name: table.column(name) for name in table.schema.names}
    if "headers" in keys:
        chunks = [_headers_as_bytes(chunk) for chunk in keys["headers"].chunks]
        keys["headers"] = pa.chunked_array(chunks, pa.binary())
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    yield from table.take(order).to_batches()


def _headers_as_bytes(headers: pa.ListArray) -> pa.Array:
    """Encodes each row's headers as sortable bytes: keys and values, each after its length.

    Equal headers give equal bytes.
    """
    counts = pc.fill_null(pc.list_value_length(headers), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    parts = [_with_length(each.cast(pa.binary())) for each in headers.flatten().flatten()]
    each = pc.binary_join_element_wise(*parts, b"")
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, each), b"")
    return pc.if_else(pc.is_null(headers), pa.scalar(None, pa.binary()), joined)


def _with_length(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(lengths, values, b":", null_handling="replace", null_replacement=b"")
