"""Tests what the format "millstream" refuses before it writes anything."""

import pytest
from pyspark.sql.types import BinaryType, StructType

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.pipelines import project
from millstream.spark.sessions import DIVIDING_ALIKE
from millstream.spark.source import MillstreamSource

ROWS = StructType().add("value", BinaryType())


def test_a_sink_without_row_order_is_refused_when_no_hook_has_seen_its_plan() -> None:
    stream, table = MillstreamSource({"topic": "a"}), MillstreamSource({"topic": "a", "txnId": "x"})
    for make in (stream.streamWriter, table.writer):
        with pytest.raises(MillstreamError, match=r"rowOrder=given if .* rowOrder=sorted if") as caught:
            make(ROWS, False)
        assert caught.value.code is ErrorCode.INVALID_SETTING


def test_projects_set_the_settings_for_repeatable_batches() -> None:
    assert DIVIDING_ALIKE.items() <= project.SETTINGS.items()
