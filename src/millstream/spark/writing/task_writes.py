"""What a task writes: opened, written to, sealed; and what the driver then does with all that tasks have sealed.

Sealed rows are in their topics already, and readers see them: there is nothing left to publish or to take back. That a
repeated task doubles nothing is the numbered writer's work: a task of the same name and epoch, given the same rows in
the same order, adds what is missing. Stages that readers do not see before they are published can take this one's
place without Spark's side knowing.
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
    """Whose rows these are: of a query, in one of its batches, in one of that batch's tasks."""

    query: str
    batch: int
    task: int

    def name(self, topic: str) -> bytes:
        """What the brokers know this task's writer to a topic by, through `EPOCHS` batches."""
        return "\0".join((self.query, topic, str(self.task), str(self.batch // EPOCHS))).encode()

    @property
    def epoch(self) -> int:
        return self.batch % EPOCHS


@dataclass(frozen=True, slots=True)
class Handle:
    """What a task has sealed: how many rows of each topic."""

    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Where rows go; picklable."""

    topic: str | None
    """None: the rows say so."""
    partitions: int | None
    """Of that topic, as the driver saw it, so that all tasks of a batch divide rows alike."""
    compression: str
    is_sorted: bool


class TaskStage:
    """One attempt of one task. Use it with `with`; without `seal`, what is under way is given up."""

    def __init__(self, client: Client, target: SinkTarget, identity: TaskIdentity | None, turn: int) -> None:
        self._client = client
        self._target = target
        self._identity = identity
        self._turn = turn
        self._writers: dict[str, NumberedWriter] = {}
        self._stack = ExitStack()

    @classmethod
    def open(cls, client: Client, target: SinkTarget, identity: TaskIdentity | None, task: int) -> Self:
        """Without an identity a repeated task writes its rows again."""
        batch = 0 if identity is None else identity.batch
        return cls(client, target, identity, task + batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Take these rows; raises what the numbered writer raises."""
        for topic, rows in self._by_topic(batch):
            self._writer(topic).write(rows)

    def seal(self) -> Handle:
        """Wait until all rows are stored."""
        return Handle({topic: writer.finish() for topic, writer in self._writers.items()})

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._target.topic is not None:
            yield self._target.topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, "a row's column topic is null: it names no topic")
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
    """Let readers see what was sealed: they do since it was."""


def drop(handles: Sequence[Handle]) -> None:
    """Take back what was sealed and not published: there is nothing of that kind."""


def in_order_of_content(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All these rows, sorted by what is in them: the same rows come in the same order whatever order they had."""
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
    """Bytes for each row that are the same where its headers are: their keys and values, each after its length."""
    counts = pc.fill_null(pc.list_value_length(headers), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    parts = [_with_length(each.cast(pa.binary())) for each in headers.flatten().flatten()]
    each = pc.binary_join_element_wise(*parts, b"")
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, each), b"")
    return pc.if_else(pc.is_null(headers), pa.scalar(None, pa.binary()), joined)


def _with_length(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(lengths, values, b":", null_handling="replace", null_replacement=b"")
