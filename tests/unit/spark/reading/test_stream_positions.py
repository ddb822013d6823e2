"""Positions in Spark's checkpoint: the same text for the same place, and known for what they are."""

import json
from uuid import UUID

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.reading.stream_positions import (
    FORMAT,
    TopicPosition,
    beginning,
    begun,
    bytes_of,
    epochs_of,
    following,
    from_json,
    offsets_of,
    positions_of,
    resumed_of,
    to_json,
)

ID = UUID(int=7)
PLACES = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 4, TopicPartition("a", 0): 0}
SIZES = {TopicPartition("a", 0): 99}


def test_a_position_is_the_same_text_in_whatever_order_it_was_made() -> None:
    turned = dict(reversed(PLACES.items()))
    ids = {"b": ID, "a": ID}
    texts = {json.dumps(to_json(positions_of(each, ids, SIZES))) for each in (PLACES, turned)}
    assert texts == {
        '{"#format": "millstream-1", '
        '"a": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"0": 0}, "bytes": {"0": 99}}, '
        '"b": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"9": 4, "10": 5}, '
        '"bytes": {}}}'
    }


def test_a_position_comes_back_as_it_was() -> None:
    epochs, resumed = {TopicPartition("b", 9): 3}, {TopicPartition("b", 10): 2}
    positions = positions_of(PLACES, {"a": ID, "b": ID}, SIZES, epochs, resumed)
    assert from_json(json.loads(json.dumps(to_json(positions)))) == positions
    assert (epochs_of(positions), resumed_of(positions)) == (epochs, resumed)
    assert offsets_of(positions) == PLACES
    assert bytes_of(positions) == SIZES
    assert from_json(to_json(beginning(positions))) == beginning(positions)


def test_a_first_batch_that_is_repeated_begins_where_it_did_although_the_stream_would_begin_elsewhere_now() -> None:
    first = beginning({"a": TopicPosition(ID, {0: 5, 1: 0})})
    end = following(first, {"a": TopicPosition(ID, {0: 9, 1: 0})}, {})
    later = beginning({"a": TopicPosition(ID, {0: 12, 1: 3})})
    assert offsets_of(begun(later, end)) == offsets_of(begun(first, end)) == offsets_of(first)


@pytest.mark.parametrize("old", [{}, {"b": UUID(int=8)}], ids=["new", "made anew"])
def test_a_first_batch_that_is_repeated_reads_a_topic_again_that_came_while_it_was_planned(
    old: dict[str, UUID],
) -> None:
    first = beginning(
        {"a": TopicPosition(ID, {0: 5})} | {name: TopicPosition(each, {0: 7}) for name, each in old.items()}
    )
    after = {"a": TopicPosition(ID, {0: 5}), "b": TopicPosition(ID, {0: 9})}
    end = following(first, after, {TopicPartition("a", 0): 5, TopicPartition("b", 0): 2})
    later = beginning({"a": TopicPosition(ID, {0: 12}), "b": TopicPosition(ID, {0: 9})})
    assert offsets_of(begun(later, from_json(to_json(end)))) == {TopicPartition("a", 0): 5, TopicPartition("b", 0): 2}


def test_a_topic_that_comes_later_has_no_part_in_the_beginning() -> None:
    before = following(beginning({"a": TopicPosition(ID, {0: 5})}), {"a": TopicPosition(ID, {0: 9})}, {})
    assert following(before, {"b": TopicPosition(ID, {0: 3})}, {}) == {"b": TopicPosition(ID, {0: 3})}


def test_later_batches_begin_where_the_last_one_ended() -> None:
    first = beginning({"a": TopicPosition(ID, {0: 5})})
    assert following(first, {"a": TopicPosition(ID, {0: 5})}, {}) == first
    second = following(first, {"a": TopicPosition(ID, {0: 9})}, {})
    assert following(second, {"a": TopicPosition(ID, {0: 9})}, {}) == second
    third = following(second, {"a": TopicPosition(ID, {0: 10})}, {})
    assert third == {"a": TopicPosition(ID, {0: 10})}
    assert begun(second, third) == second


def test_a_topic_that_was_made_anew_begins_by_itself() -> None:
    before = {"a": TopicPosition(ID, {0: 5})}
    anew = {"a": TopicPosition(UUID(int=8), {0: 5})}
    assert following(before, anew, {}) == anew


@pytest.mark.parametrize(
    "said", [{"a": 5}, {"a": {"0": 5}}, {"a": {"id": "x", "offsets": {}}}, {"a": {"id": str(ID), "offsets": {}}}]
)
def test_a_damaged_position_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(MillstreamError, match="damaged") as caught:
        from_json({"#format": FORMAT, **said})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("marked", [{}, {"#format": "other-1"}])
def test_the_position_of_another_format_is_refused(marked: dict[str, object]) -> None:
    whole = {topic: each for topic, each in to_json({"a": TopicPosition(ID, {0: 5})}).items() if topic != "#format"}
    with pytest.raises(MillstreamError, match="unknown format") as caught:
        from_json({**marked, **whole})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
