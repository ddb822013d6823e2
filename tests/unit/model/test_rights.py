"""Tests rights and the errors that refuse them."""

import pytest

from millstream.model.errors import ErrorCode
from millstream.model.rights import READING, Right


@pytest.mark.parametrize("right", [right for right in Right if right is not Right.NOTHING])
def test_each_missing_right_gives_the_error_of_its_resource(right: Right) -> None:
    expected = {
        "topics": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "messages": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "groups": ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "cluster": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
    assert right.refusal is expected[right.value.partition(":")[0]]


def test_the_reading_rights_are_those_that_end_with_read() -> None:
    assert {right for right in Right if right.value.endswith(":read")} | {Right.NOTHING} == READING
