"""Tests the positions in Spark's checkpoint: equal positions have equal text, and other formats are refused."""

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


def test_equal_positions_have_equal_text() -> None:
    turned = dict(reversed(PLACES.items()))
    ids = {"b": ID, "a": ID}
    texts = {json.dumps(to_json(positions_of(each, ids, SIZES))) for each in (PLACES, turned)}
    assert texts == {
        '{"#format": "millstream-1", '
        '"a": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"0": 0}, "bytes": {"0": 99}}, '
        '"b": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"9": 4, "10": 5}, '
        '"bytes": {}}}'
    }


def test_positions_survive_encoding() -> None:
    epochs, resumed = {TopicPartition("b", 9): 3}, {TopicPartition("b", 10): 2}
    positions = positions_of(PLACES, {"a": ID, "b": ID}, SIZES, epochs, resumed)
    assert from_json(json.loads(json.dumps(to_json(positions)))) == positions
    assert (epochs_of(positions), resumed_of(positions)) == (epochs, resumed)
    assert offsets_of(positions) == PLACES
    assert bytes_of(positions) == SIZES
    assert from_json(to_json(beginning(positions))) == beginning(positions)


def test_a_repeated_first_batch_begins_at_its_recorded_start() -> None:
    first = beginning({"a": TopicPosition(ID, {0: 5, 1: 0})})
    end = following(first, {"a": TopicPosition(ID, {0: 9, 1: 0})}, {})
    later = beginning({"a": TopicPosition(ID, {0: 12, 1: 3})})
    assert offsets_of(begun(later, end)) == offsets_of(begun(first, end)) == offsets_of(first)


@pytest.mark.parametrize("old", [{}, {"b": UUID(int=8)}], ids=["new", "recreated"])
def test_a_repeated_first_batch_rereads_a_topic_created_while_it_was_planned(
    old: dict[str, UUID],
) -> None:
    first = beginning(
        {"a": TopicPosition(ID, {0: 5})} | {name: TopicPosition(each, {0: 7}) for name, each in old.items()}
    )
    after = {"a": TopicPosition(ID, {0: 5}), "b": TopicPosition(ID, {0: 9})}
    end = following(first, after, {TopicPartition("a", 0): 5, TopicPartition("b", 0): 2})
    later = beginning({"a": TopicPosition(ID, {0: 12}), "b": TopicPosition(ID, {0: 9})})
    assert offsets_of(begun(later, from_json(to_json(end)))) == {TopicPartition("a", 0): 5, TopicPartition("b", 0): 2}


def test_a_topic_added_later_has_no_recorded_start() -> None:
    before = following(beginning({"a": TopicPosition(ID, {0: 5})}), {"a": TopicPosition(ID, {0: 9})}, {})
    assert following(before, {"b": TopicPosition(ID, {0: 3})}, {}) == {"b": TopicPosition(ID, {0: 3})}


def test_later_batches_begin_where_the_previous_one_ended() -> None:
    first = beginning({"a": TopicPosition(ID, {0: 5})})
    assert following(first, {"a": TopicPosition(ID, {0: 5})}, {}) == first
    second = following(first, {"a": TopicPosition(ID, {0: 9})}, {})
    assert following(second, {"a": TopicPosition(ID, {0: 9})}, {}) == second
    third = following(second, {"a": TopicPosition(ID, {0: 10})}, {})
    assert third == {"a": TopicPosition(ID, {0: 10})}
    assert begun(second, third) == second


def test_a_recreated_topic_has_a_position_of_its_own() -> None:
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
def test_a_position_in_another_format_is_refused(marked: dict[str, object]) -> None:
    whole = {topic: each for topic, each in to_json({"a": TopicPosition(ID, {0: 5})}).items() if topic != "#format"}
    with pytest.raises(MillstreamError, match="unknown format") as caught:
        from_json({**marked, **whole})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
