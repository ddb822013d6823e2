"""Tests the columns of a topic in Spark's types."""

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StructField, StructType, TimestampType

from millstream.model.errors import MillstreamError
from millstream.spark.columns import ArrowColumns, check_schema
from millstream.spark.values.options import ValueFormat, ValueOptions, ValueShape

LAST_US = (2**63 - 1) // 1000 * 1000


@pytest.mark.parametrize(
    ("time_ms", "expected_us"),
    [(1769860800123, 1769860800123000), (-5, -5000), (2**60, LAST_US), (2**63 - 1, LAST_US), (-(2**62), -LAST_US)],
)
def test_timestamps_outside_sparks_range_are_clamped(time_ms: int, expected_us: int) -> None:
    times = pa.array([0, time_ms], pa.timestamp("ms", "UTC"))
    columns = ArrowColumns(StructType().add("timestamp", TimestampType()), ValueOptions())
    (found,) = columns.of(pa.record_batch({"timestamp": times})).columns
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [0, expected_us]


@pytest.mark.parametrize(
    "kind",
    [
        ArrayType(IntegerType(), containsNull=False),
        StructType([StructField("part", LongType(), nullable=False)]),
        ArrayType(StructType([StructField("part", ArrayType(LongType(), containsNull=False))])),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ValueShape)
def test_not_null_types_inside_values_are_refused(kind: DataType, shape: ValueShape) -> None:
    fields = StructType([StructField("field", kind)])
    schema = fields if shape is ValueShape.COLUMNS else StructType([StructField("value", fields)])
    for values in (ValueOptions(ValueFormat.JSON, shape=shape), ValueOptions(ValueFormat.ARROW, shape=shape)):
        with pytest.raises(MillstreamError, match="or a part of it, is NOT NULL"):
            check_schema(schema, values)
