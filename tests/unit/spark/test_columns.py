"""Columns of a topic, in Spark's types."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType, TimestampType

from penstock.spark.columns import ArrowColumns
from penstock.spark.values.options import ValueOptions

LAST_US = (2**63 - 1) // 1000 * 1000


@pytest.mark.parametrize(
    ("time_ms", "expected_us"),
    [(1769860800123, 1769860800123000), (-5, -5000), (2**60, LAST_US), (2**63 - 1, LAST_US), (-(2**62), -LAST_US)],
)
def test_a_time_that_spark_does_not_reach_is_the_last_that_it_does(time_ms: int, expected_us: int) -> None:
    times = pa.array([0, time_ms], pa.timestamp("ms", "UTC"))
    columns = ArrowColumns(StructType().add("timestamp", TimestampType()), ValueOptions())
    (found,) = columns.of(pa.record_batch({"timestamp": times})).columns
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [0, expected_us]
