"""The stream whose tasks write an archive: they fetch messages and store them, and Spark is handed what they stored.

So the messages do not go through Java. Spark brings what it is good at: tasks on many machines, those that fail tried
again, and a checkpoint. What a batch has stored counts once the driver has committed it (`topic_archive`); positions of
the checkpoint are held against the archive's index, which knows better.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.archive.archive_pieces import ArchivePiece, to_json
from millstream.spark.archive.parquet_files import ROLL_BYTES, PieceWriter
from millstream.spark.archive.topic_archive import TopicArchive
from millstream.spark.connections import client_of
from millstream.spark.options import DataLoss, SourceOptions, parse_options, source_options
from millstream.spark.reading.planning import Range, plan
from millstream.spark.reading.reachable_ranges import ReadableRange, between, is_resumed
from millstream.spark.reading.reader import Task
from millstream.spark.reading.stream_positions import (
    Positions,
    bytes_of,
    epochs_of,
    from_json,
    offsets_of,
    positions_of,
    resumed_of,
)
from millstream.spark.reading.stream_positions import to_json as position_json
from millstream.spark.reading.stream_reader import StreamReader
from millstream.spark.reading.task_fetch import fetch_records
from millstream.spark.reading.topic_survey import TopicSurvey

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ROW = pa.schema([pa.field("piece", pa.string())])
_ATTEMPTS = 3
"""How often a task looks again where messages begin that expire under its hands."""


class ArchivingSource(DataSource):
    """A row is a piece that was stored, as JSON. The options are those of the format "millstream"."""

    @classmethod
    def name(cls) -> str:
        return "millstream_archiving"

    def schema(self) -> str:
        return "piece string"

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return ArchivingReader(source_options(parse_options(self.options), streaming=True), schema)


class ArchivingReader(StreamReader):
    """Begins behind what is archived, whatever becomes of checkpoints, and never stores an offset twice."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        super().__init__(options, schema)
        self._first: dict[str, Any] | None = None

    @cached_property
    def _survey(self) -> TopicSurvey:
        return TopicSurvey(client_of(self._options.bootstrap), self._options)

    @cached_property
    def _shelf(self) -> TopicArchive:
        return shelf_of(self._options)

    @cached_property
    def _archived(self) -> dict[TopicPartition, int]:
        """Up to where the archive went when the query began."""
        extents = self._shelf.extents()
        return {TopicPartition(self._shelf.topic, number): extent.end for number, extent in extents.items()}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = self._survey.find()
        extents = self._survey.extents(found.places)
        starts = {where: self._archived.get(where, extent.first) for where, extent in extents.items()}
        for where, extent in extents.items():
            if starts[where] > extent.next:
                text = f"{where}: the archive ends at {starts[where]}, but the topic already at {extent.next}"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        return position_json(positions_of(starts, found.ids))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = from_json(end)
        archived_id = self._shelf.topic_id()
        for position in after.values():
            assert archived_id is not None, "it was made before the query"
            self._shelf.check_topic(archived_id, position.topic_id)
        known = from_json(start)
        _check_kept(known, after)
        starts = self._batch_starts(start, after)
        ids = {topic: position.topic_id for topic, position in after.items()}
        before = positions_of(starts, ids, epochs=epochs_of(after), resumed=resumed_of(after))
        extents = self._survey.extents([where for where, last in offsets_of(after).items() if starts[where] < last])
        self._check_there(starts, extents)
        ranges = between(before, after, extents, bytes_of(after), self._options.data_loss)
        return [Task(each) for each in plan(ranges, self._options.min_tasks, ROLL_BYTES)]

    def _check_there(
        self, starts: Mapping[TopicPartition, int], extents: Mapping[TopicPartition, ReadableRange]
    ) -> None:
        for where, extent in extents.items():
            if starts[where] < extent.first and self._options.data_loss is DataLoss.FAIL:
                text = f"{where}: offsets {starts[where]} to {extent.first - 1} expired before they were archived"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _batch_starts(self, start: dict[str, Any], after: Positions) -> dict[TopicPartition, int]:
        """Where a batch begins: the first one of a query where the archive ends, and not where a checkpoint says; what
        was not there before, where it was found."""
        self._first = self._first or start
        archived = self._archived if start == self._first else {}
        begun = {**resumed_of(after), **offsets_of(from_json(start)), **archived}
        return {where: begun.get(where, 0) for where in offsets_of(after)}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges: Sequence[Range] = partition.value or ()
        for piece in store(ranges, self._options) if ranges else ():
            yield pa.RecordBatch.from_pylist([{"piece": to_json(piece)}], schema=_ROW)


def _check_kept(before: Positions, after: Positions) -> None:
    """A log that has lost its end has other messages by now at offsets that are archived: no policy helps there."""
    for topic, position in after.items():
        for number, offset in position.resumed.items():
            if number in before[topic].offsets and is_resumed(before[topic], position, number):
                where = TopicPartition(topic, number)
                text = f"{where}: the log has lost what it had from offset {offset} on, which is archived"
                raise MillstreamError(ErrorCode.FENCED_LEADER_EPOCH, text)


def shelf_of(options: SourceOptions) -> TopicArchive:
    assert options.archive is not None, "who writes or reads an archive says where it is"
    return TopicArchive(options.archive, options.topics[0])


def store(ranges: Sequence[Range], options: SourceOptions) -> list[ArchivePiece]:
    """Write the messages of these ranges of a topic, each of another partition; what was written, not yet committed.

    OFFSET_OUT_OF_RANGE when some have gone since the driver looked, if that is a failure; else the pieces begin where
    the messages do.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _stored(ranges, options)
        except MillstreamError as error:
            is_last = attempt == _ATTEMPTS - 1
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or options.data_loss is DataLoss.FAIL or is_last:
                raise
        extents = TopicSurvey(client_of(options.bootstrap), options).extents([each.where for each in ranges])
        later = (each._replace(start=max(each.start, extents[each.where].first)) for each in ranges)
        ranges = [each for each in later if each.start < each.end]
    raise AssertionError("the last attempt returns or raises")


def _stored(ranges: Sequence[Range], options: SourceOptions) -> list[ArchivePiece]:
    shelf = shelf_of(options)
    writers = {each.partition: PieceWriter(shelf, each.partition) for each in ranges}
    try:
        if ranges:
            for batch in fetch_records(client_of(options.bootstrap), shelf.topic, ranges, may_fail=True):
                writers[batch.column("partition")[0].as_py()].write(batch)
        return [writers[each.partition].finish(each.start, each.end) for each in ranges]
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
