"""Measures Spark's own cost of a source in Python: a source that sends the same prepared rows again and again."""

import gc
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

BATCH_ROWS = 10_000

# The workers cannot import bench.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Floor(DataSource):
    """A source with `rows` rows in `tasks` tasks, and the columns of topics."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        numbers = "partition INT NOT NULL, offset BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL"
        return f"key BINARY, value BINARY, topic STRING NOT NULL, {numbers}"

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(schema, int(self.options["rows"]), int(self.options["tasks"]))


class FloorReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self._schema = schema
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        gc.freeze()
        batch = _batch(to_arrow_schema(self._schema, timezone="UTC"))
        left = self._rows // self._tasks + (partition.value < self._rows % self._tasks)
        while left > 0:
            yield batch.slice(0, left)
            left -= BATCH_ROWS


def _batch(schema: pa.Schema) -> pa.RecordBatch:
    numbers = range(BATCH_ROWS)
    columns = [
        pa.array([b"%016d" % (number % 1000) for number in numbers]),
        pa.array([b"%0100d" % number for number in numbers]),
        pa.array(["rows"] * BATCH_ROWS),
        pa.array([0] * BATCH_ROWS, pa.int32()),
        pa.array(numbers, pa.int64()),
        pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
