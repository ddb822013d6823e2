"""What the format "millstream" refuses before anything is written."""

import pytest
from pyspark.sql.types import BinaryType, StructType

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.pipelines import project
from millstream.spark.sessions import DIVIDING_ALIKE
from millstream.spark.source import MillstreamSource

ROWS = StructType().add("value", BinaryType())


def test_a_sink_whose_plan_nobody_looked_at_is_refused_unless_the_order_of_rows_is_said() -> None:
    stream, table = MillstreamSource({"topic": "a"}), MillstreamSource({"topic": "a", "txnId": "x"})
    for make in (stream.streamWriter, table.writer):
        with pytest.raises(MillstreamError, match=r"rowOrder=given where .* rowOrder=sorted where") as caught:
            make(ROWS, False)
        assert caught.value.code is ErrorCode.INVALID_SETTING


def test_projects_divide_the_rows_of_a_repeated_batch_alike_too() -> None:
    assert DIVIDING_ALIKE.items() <= project.SETTINGS.items()
