"""Implements the stream whose tasks write an archive: tasks fetch and store messages, and return what they stored.

So messages do not pass through Java. Spark contributes tasks on many machines, retries of failed tasks, and a
checkpoint. The files of a batch become part of the archive when the driver commits them (`topic_archive`). The
archive's index overrides the positions in the checkpoint.
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
"""Maximum number of attempts of a task whose messages expire while it reads."""


class ArchivingSource(DataSource):
    """Yields one row per stored piece, as JSON. Takes the options of the format "millstream"."""

    @classmethod
    def name(cls) -> str:
        return "millstream_archiving"

    def schema(self) -> str:
        return "piece string"

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return ArchivingReader(source_options(parse_options(self.options), streaming=True), schema)


class ArchivingReader(StreamReader):
    """Begins where the archive ends, regardless of checkpoints, and never stores an offset twice."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        super().__init__(options, schema)
        self._first: dict[str, Any] | None = None
        """Start of the first batch that this object planned."""

    @cached_property
    def _survey(self) -> TopicSurvey:
        return TopicSurvey(client_of(self._options.bootstrap), self._options)

    @cached_property
    def _topic_archive(self) -> TopicArchive:
        return shelf_of(self._options)

    @cached_property
    def _archived(self) -> dict[TopicPartition, int]:
        """End offsets of the archived partitions when the query started."""
        extents = self._topic_archive.extents()
        return {TopicPartition(self._topic_archive.topic, number): extent.end for number, extent in extents.items()}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = self._survey.find()
        extents = self._survey.extents(found.places)
        starts = {where: self._archived.get(where, extent.first) for where, extent in extents.items()}
        for where, extent in extents.items():
            if starts[where] > extent.next:
                text = f"{where}: the archive ends at {starts[where]}, after the end of the topic ({extent.next})"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        return position_json(positions_of(starts, found.ids))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = from_json(end)
        archived_id = self._topic_archive.topic_id()
        for position in after.values():
            assert archived_id is not None, "the archive is created before the query"
            self._topic_archive.check_topic(archived_id, position.topic_id)
        known = from_json(start)
        _check_kept(known, after)
        starts = self._batch_starts(start, after)
        ids = {topic: position.topic_id for topic, position in after.items()}
        before = positions_of(starts, ids, epochs=epochs_of(after), resumed=resumed_of(after))
        extents = self._survey.extents([where for where, last in offsets_of(after).items() if starts[where] < last])
        self._check_there(starts, extents)
        ranges = between(before, after, extents, bytes_of(after), self._options.data_loss)
        return [Task(each) for each in plan(ranges, self._options.min_tasks, split_bytes=ROLL_BYTES)]

    def _check_there(
        self, starts: Mapping[TopicPartition, int], extents: Mapping[TopicPartition, ReadableRange]
    ) -> None:
        """Raises OFFSET_OUT_OF_RANGE if offsets expired before they were archived and the policy is FAIL."""
        for where, extent in extents.items():
            if starts[where] < extent.first and self._options.data_loss is DataLoss.FAIL:
                text = f"{where}: offsets {starts[where]} to {extent.first - 1} expired before they were archived"
                raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _batch_starts(self, start: dict[str, Any], after: Positions) -> dict[TopicPartition, int]:
        """Returns where a batch begins.

        The first batch of a query begins where the archive ends, not where the checkpoint says. A new partition begins
        where the query found it.
        """
        self._first = self._first or start
        archived = self._archived if start == self._first else {}
        begun = {**resumed_of(after), **offsets_of(from_json(start)), **archived}
        return {where: begun.get(where, 0) for where in offsets_of(after)}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges: Sequence[Range] = partition.value or ()
        for piece in store(ranges, self._options) if ranges else ():
            yield pa.RecordBatch.from_pylist([{"piece": to_json(piece)}], schema=_ROW)


def _check_kept(before: Positions, after: Positions) -> None:
    """Raises FENCED_LEADER_EPOCH if a log was truncated below archived offsets, which may have other messages now.

    No data-loss policy can repair that.
    """
    for topic, position in after.items():
        for number, offset in position.resumed.items():
            if number in before[topic].offsets and is_resumed(before[topic], position, number):
                where = TopicPartition(topic, number)
                text = f"{where}: the log was truncated to offset {offset}, but later offsets are archived"
                raise MillstreamError(ErrorCode.FENCED_LEADER_EPOCH, text)


def shelf_of(options: SourceOptions) -> TopicArchive:
    assert options.archive is not None, "the option archive is set"
    return TopicArchive(options.archive, options.topics[0])


def store(ranges: Sequence[Range], options: SourceOptions) -> list[ArchivePiece]:
    """Writes the messages of these ranges of a topic, each of another partition; returns the pieces, not yet committed.

    If messages expired since the driver planned the batch: OFFSET_OUT_OF_RANGE if the policy is FAIL, else the pieces
    begin at the first message that still exists.
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
    topic_archive = shelf_of(options)
    writers = {each.partition: PieceWriter(topic_archive, each.partition) for each in ranges}
    try:
        if ranges:
            for batch in fetch_records(client_of(options.bootstrap), topic_archive.topic, ranges, may_fail=True):
                writers[batch.column("partition")[0].as_py()].write(batch)
        return [writers[each.partition].finish(each.start, end=each.end) for each in ranges]
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
