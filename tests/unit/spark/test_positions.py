"""Positions in Spark's checkpoint: the same text for the same place, and known for what they are."""

import json
from uuid import UUID

import pytest

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.spark.positions import bytes_of, from_json, offsets_of, positions_of, to_json

ID = UUID(int=7)
PLACES = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 4, TopicPartition("a", 0): 0}
SIZES = {TopicPartition("a", 0): 99}


def test_a_position_is_the_same_text_in_whatever_order_it_was_made() -> None:
    turned = dict(reversed(PLACES.items()))
    ids = {"b": ID, "a": ID}
    texts = {json.dumps(to_json(positions_of(each, ids, SIZES))) for each in (PLACES, turned)}
    assert texts == {
        '{"a": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"0": 0}, "bytes": {"0": 99}}, '
        '"b": {"id": "00000000-0000-0000-0000-000000000007", "offsets": {"9": 4, "10": 5}, '
        '"bytes": {}}}'
    }


def test_a_position_comes_back_as_it_was() -> None:
    positions = positions_of(PLACES, {"a": ID, "b": ID}, SIZES)
    assert from_json(json.loads(json.dumps(to_json(positions)))) == positions
    assert offsets_of(positions) == PLACES
    assert bytes_of(positions) == SIZES


@pytest.mark.parametrize(
    "said", [{"a": 5}, {"a": {"0": 5}}, {"a": {"id": "x", "offsets": {}}}, {"a": {"id": str(ID), "offsets": {}}}]
)
def test_the_position_of_another_source_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(PenstockError, match="another's") as caught:
        from_json(said)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
