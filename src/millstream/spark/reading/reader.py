"""Topics as a table: what is there between two places is planned once, on the driver, and read by tasks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.options import SourceOptions
from millstream.spark.reading.offset_bounds import BoundKind, OffsetBound, PartitionBounds
from millstream.spark.reading.planning import Range, plan
from millstream.spark.reading.pushed_filters import FilterLimits, push
from millstream.spark.reading.reachable_ranges import ReadableRange, still_there
from millstream.spark.reading.topic_survey import TopicSurvey, survey_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """What one task of Spark reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))

    def __repr__(self) -> str:
        return f"<Task of {', '.join(f'{each.where} {each.start}-{each.end}' for each in self.value)}>"


def read_task(partition: InputPartition, options: SourceOptions, schema: "StructType") -> "Iterator[pa.RecordBatch]":
    """On an executor; a plan without tasks is given to one without ranges."""
    from millstream.spark.reading.task_fetch import fetch

    return fetch(partition.value or (), options, schema)


class BatchReader(DataSourceReader):
    """Sent to executors, so it holds nothing but what was said."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._limits = FilterLimits()

    def partitions(self) -> Sequence[InputPartition]:
        survey = survey_of(self._options)
        return [Task(ranges) for ranges in plan(self._ranges(survey), self._options.min_tasks)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self._options, self._schema)

    def _ranges(self, survey: TopicSurvey) -> list[Range]:
        options = self._options
        found = survey.find()
        extents = survey.extents(found.places)
        starts = survey.offsets(options.starting, extents, OffsetBound.earliest())
        assert options.ending is not None, "what is read at once has an end"
        ends = survey.offsets(options.ending, extents, OffsetBound.latest())
        for where, extent in extents.items():
            _check_range(where, starts[where], ends[where], extent)
        times = self._first_of_time(survey, extents)
        bytes_each = survey.bytes_each(found.places)
        ranges = []
        for where in filter(self._limits.wants, found.places):
            start, end = still_there(where, starts[where], ends[where], extents[where], options.data_loss)
            start, end = self._limits.clip(max(start, min(end, times.get(where, 0))), end)
            size_bytes = int((end - start) * bytes_each[where])
            ranges.append(Range(where.topic, found.ids[where.topic], where.partition, start, end, size_bytes))
        return ranges

    def _first_of_time(
        self, survey: TopicSurvey, extents: Mapping[TopicPartition, ReadableRange]
    ) -> Mapping[TopicPartition, int]:
        if self._limits.first_time_ms is None:
            return {}
        return survey.offsets(
            PartitionBounds(OffsetBound(BoundKind.TIME, self._limits.first_time_ms)), extents, OffsetBound.earliest()
        )


class PushingReader(BatchReader):
    """Spark refuses a reader that takes filters wherever its setting for that is off."""

    def pushFilters(self, filters: "list[Filter]") -> "list[Filter]":  # noqa: N802  # Spark's name
        return push(filters, self._limits)


def _check_range(where: TopicPartition, start: int, end: int, extent: ReadableRange) -> None:
    """INVALID_SETTING for places that were not reached, or lie the wrong way round."""
    problem = None
    if max(start, end) > extent.next:
        name, offset = ("startingOffsets", start) if start > extent.next else ("endingOffsets", end)
        problem = f"{name} says {offset}, but it ends at {extent.next}"
    elif start > end:
        problem = f"it was to be read from {start} on up to {end}, which comes before"
    if problem:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{where}: {problem}")
