"""Reads topics as a table: the driver plans the ranges once, and tasks read them."""

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
    """The ranges that one Spark task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))

    def __repr__(self) -> str:
        return f"<Task of {', '.join(f'{each.where} {each.start}-{each.end}' for each in self.value)}>"


def read_task(partition: InputPartition, options: SourceOptions, schema: "StructType") -> "Iterator[pa.RecordBatch]":
    """Reads the ranges of a task, on an executor. If the plan has no tasks, Spark runs one without ranges."""
    from millstream.spark.reading.task_fetch import fetch

    return fetch(partition.value or (), options, schema)


class BatchReader(DataSourceReader):
    """Plans and reads a table. Spark pickles it for the executors, so it holds options only."""

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
        """Returns the ranges to read, after the bounds, the data-loss policy and the filters."""
        options = self._options
        found = survey.find()
        extents = survey.extents(found.places)
        starts = survey.offsets(options.starting, extents, OffsetBound.earliest())
        assert options.ending is not None, "a table has an end"
        ends = survey.offsets(options.ending, extents, OffsetBound.latest())
        for where, extent in extents.items():
            _check_range(where, starts[where], end=ends[where], extent=extent)
        times = self._first_of_time(survey, extents)
        bytes_each = survey.bytes_each(found.places)
        ranges = []
        for where in filter(self._limits.wants, found.places):
            start, end = still_there(
                where, starts[where], end=ends[where], reach=extents[where], policy=options.data_loss
            )
            start, end = self._limits.clip(max(start, min(end, times.get(where, 0))), end=end)
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
    """A reader that accepts filters. Spark refuses such a reader if filter pushdown is disabled."""

    def pushFilters(self, filters: "list[Filter]") -> "list[Filter]":  # noqa: N802  # Spark's name
        return push(filters, self._limits)


def _check_range(where: TopicPartition, start: int, *, end: int, extent: ReadableRange) -> None:
    """Raises INVALID_SETTING if the start is after the end, or if either is after the end of the partition."""
    problem = None
    if max(start, end) > extent.next:
        name, offset = ("startingOffsets", start) if start > extent.next else ("endingOffsets", end)
        problem = f"{name}={offset} is after the end of the partition (offset {extent.next})"
    elif start > end:
        problem = f"the starting offset {start} is after the ending offset {end}"
    if problem:
        raise MillstreamError(ErrorCode.INVALID_SETTING, f"{where}: {problem}")
