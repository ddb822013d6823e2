"""Tests filter pushdown: accepted filters are applied exactly, the others are left to Spark."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from millstream.model.names import TopicPartition
from millstream.spark.reading.pushed_filters import FilterLimits, push

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def limits(*filters: Filter) -> FilterLimits:
    found = FilterLimits()
    assert push(filters, found) == []
    return found


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (EqualTo(("partition",), 2), [2]),
        (In(("partition",), (0, 3)), [0, 3]),
        (GreaterThan(("partition",), 2), [3]),
        (LessThanOrEqual(("partition",), 1), [0, 1]),
    ],
)
def test_filters_select_partitions(made: Filter, wanted: list[int]) -> None:
    found = limits(made)
    assert [number for number in range(4) if found.wants(TopicPartition("a", number))] == wanted


def test_filters_select_topics() -> None:
    found = limits(EqualTo(("topic",), "a"), IsNotNull(("topic",)))
    assert [name for name in "abc" if found.wants(TopicPartition(name, 0))] == ["a"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("offset",), 5)], (6, 20)),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], (5, 9)),
        ([LessThanOrEqual(("offset",), 9)], (2, 10)),
        ([EqualTo(("offset",), 7)], (7, 8)),
        ([EqualTo(("offset",), 1)], (2, 2)),
        ([EqualTo(("offset",), 50)], (50, 50)),
    ],
)
def test_filters_clip_offset_ranges(filters: list[Filter], expected: tuple[int, int]) -> None:
    assert limits(*filters).clip(2, end=20) == expected


def test_a_timestamp_filter_sets_the_start_and_is_rechecked_by_spark() -> None:
    found = FilterLimits()
    wanted = [GreaterThanOrEqual(("timestamp",), NOON), LessThan(("timestamp",), NOON)]
    assert push(wanted, found) == wanted
    assert found.first_time_ms == NOON.timestamp() * 1000


@pytest.mark.parametrize(
    "left",
    [
        EqualTo(("value",), b"x"),
        StringStartsWith(("topic",), "a"),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("partition",), None),
        EqualTo(("headers", "key"), "x"),
        In(("offset",), (1, 2)),
        IsNotNull(("key",)),
    ],
)
def test_unsupported_filters_are_left_to_spark(left: Any) -> None:
    found = FilterLimits()
    assert push([left], found) == [left]
    assert (found.clip(0, end=10), found.wants(TopicPartition("a", 1))) == ((0, 10), True)
