"""Tests the rules for topic names."""

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TOPIC_NAME_MAX, TopicPartition, check_new_topic_name, check_topic_name


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "...", "x" * TOPIC_NAME_MAX])
def test_a_valid_topic_name_is_accepted(name: str) -> None:
    check_topic_name(name)
    check_new_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a\n", "a\x00", "x" * (TOPIC_NAME_MAX + 1)])
def test_an_invalid_topic_name_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(MillstreamError, match="topic name") as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["__consumer_offsets", "u.alice.orders", "__x"])
def test_reserved_topic_names_cannot_be_created_by_users(name: str) -> None:
    check_topic_name(name)
    with pytest.raises(MillstreamError, match="reserved"):
        check_new_topic_name(name)


def test_a_partition_is_displayed_as_topic_and_number() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
