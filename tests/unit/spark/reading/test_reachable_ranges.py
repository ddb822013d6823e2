"""Tests what a batch reads if messages to be read no longer exist."""

from uuid import UUID

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.options import DataLoss
from millstream.spark.reading.reachable_ranges import ReadableRange, between, still_there
from millstream.spark.reading.stream_positions import TopicPosition

WHERE = TopicPartition("orders", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
OTHERS = [DataLoss.EARLIEST, DataLoss.SKIP]


@pytest.mark.parametrize("policy", DataLoss)
def test_an_existing_range_is_read_unchanged(policy: DataLoss) -> None:
    assert still_there(WHERE, 5, end=9, reach=ReadableRange(5, 20), policy=policy) == (5, 9)


@pytest.mark.parametrize("policy", DataLoss)
def test_an_empty_range_counts_as_existing(policy: DataLoss) -> None:
    assert still_there(WHERE, 3, end=3, reach=ReadableRange(5, 20), policy=policy) == (3, 3)


@pytest.mark.parametrize(("policy", "expected"), [(DataLoss.EARLIEST, (5, 9)), (DataLoss.SKIP, (9, 9))])
def test_a_range_with_a_lost_beginning_is_shortened_or_skipped(policy: DataLoss, expected: tuple[int, int]) -> None:
    assert still_there(WHERE, 2, end=9, reach=ReadableRange(5, 20), policy=policy) == expected


def test_a_range_with_a_lost_beginning_fails_with_advice() -> None:
    with pytest.raises(
        MillstreamError, match=r"orders-0: offsets 2 to 4 no longer exist; .*dataLoss=earliest"
    ) as caught:
        still_there(WHERE, 2, end=9, reach=ReadableRange(5, 20), policy=DataLoss.FAIL)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def spans(policy: DataLoss, before: dict[str, TopicPosition], after: dict[str, TopicPosition]) -> list[tuple[int, int]]:
    extents = {TopicPartition("orders", number): ReadableRange(0, 100) for number in range(3)}
    found = between(before, after, extents, dict.fromkeys(extents, 2), policy)
    assert all(each.size_bytes == 2 * each.offsets for each in found)
    return [(each.start, each.end) for each in found]


def test_new_partitions_and_topics_are_read_from_their_beginning() -> None:
    before = {"orders": TopicPosition(OLD, {0: 5})}
    after = {"orders": TopicPosition(OLD, {0: 7, 1: 3})}
    assert spans(DataLoss.FAIL, before, after) == [(5, 7), (0, 3)]
    assert spans(DataLoss.FAIL, {}, after) == [(0, 7), (0, 3)]


@pytest.mark.parametrize(("policy", "expected"), [(DataLoss.EARLIEST, [(0, 7)]), (DataLoss.SKIP, [])])
def test_a_recreated_topic_is_read_from_its_beginning_or_skipped(
    policy: DataLoss, expected: list[tuple[int, int]]
) -> None:
    assert spans(policy, {"orders": TopicPosition(OLD, {0: 5})}, {"orders": TopicPosition(NEW, {0: 7})}) == expected


def test_a_recreated_topic_is_an_error_when_data_loss_is_not_allowed() -> None:
    with pytest.raises(MillstreamError, match="deleted and recreated") as caught:
        spans(DataLoss.FAIL, {"orders": TopicPosition(OLD, {0: 5})}, {"orders": TopicPosition(NEW, {0: 7})})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_one_batch_resumes_at_the_truncation_and_the_next_ones_continue() -> None:
    before = {"orders": TopicPosition(OLD, {0: 10}, epochs={0: 1})}
    after = {"orders": TopicPosition(OLD, {0: 8}, epochs={0: 3}, resumed={0: 5})}
    assert spans(DataLoss.EARLIEST, before, after) == [(5, 8)]
    more = {"orders": TopicPosition(OLD, {0: 8, 1: 4}, epochs={0: 3, 1: 3}, resumed={0: 5})}
    assert spans(DataLoss.EARLIEST, after, more) == [(0, 4)]
    assert spans(DataLoss.EARLIEST, after, {"orders": TopicPosition(OLD, {0: 9}, epochs={0: 3})}) == [(8, 9)]
