"""Tests committed offsets: who may commit and delete them, and what a fetch returns."""

from typing import Any

import pytest

from builders.groups.machine import SESSION_MS, WALL_MS, Driver, offering, subscription
from millstream.groups.commands import FetchOffsets, OffsetToCommit
from millstream.groups.responses import CommittedOffset, OffsetsResponse
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset


def test_a_fetch_returns_every_field_of_a_commit() -> None:
    driver = Driver()
    offsets = (
        OffsetToCommit("orders", 0, Offset(42), LeaderEpoch(7), "note"),
        OffsetToCommit("orders", 1, Offset(43), LeaderEpoch(-1), ""),
    )
    assert driver.commit(offsets=offsets).error is ErrorCode.NONE
    when_ms = WALL_MS + driver.at_ms
    found = driver.ask(FetchOffsets("g", (("orders", 0), ("orders", 9), ("other", 0))), OffsetsResponse)
    assert found == OffsetsResponse(
        offsets={("orders", 0): CommittedOffset(Offset(42), LeaderEpoch(7), "note", when_ms)}
    )
    assert driver.offsets() == {("orders", 0): 42, ("orders", 1): 43}


def test_a_fetch_for_an_unknown_group_returns_no_offsets_and_no_error() -> None:
    assert Driver().ask(FetchOffsets("unknown", (("orders", 0),)), OffsetsResponse) == OffsetsResponse()
    assert Driver().ask(FetchOffsets("unknown", None), OffsetsResponse) == OffsetsResponse()


def test_a_later_commit_may_move_the_offset_backwards() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 42))
    driver.commit(("orders", 0, 7))
    assert driver.offsets() == {("orders", 0): 7}


def test_a_commit_by_a_non_member_creates_a_simple_group() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 1))
    described = driver.describe()
    assert (described.state, described.protocol_type, described.members) == ("Empty", "", ())


def test_a_group_with_an_empty_name_accepts_commits_of_simple_consumers() -> None:
    driver = Driver()
    assert driver.commit(("orders", 0, 1), group_id="").error is ErrorCode.NONE
    assert driver.offsets("") == {("orders", 0): 1}


@pytest.mark.parametrize(
    ("knows_stale_epoch", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_commit_with_a_generation_fails_in_an_unknown_group(knows_stale_epoch: bool, error: ErrorCode) -> None:
    driver = Driver()
    committed = driver.commit(("orders", 0, 1), generation=3, member_id="me", knows_stale_epoch=knows_stale_epoch)
    assert committed.error is error
    assert driver.log == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"instance_id": "i0"}, ErrorCode.NONE),
        ({"generation": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "i0"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_only_current_members_may_commit_in_a_group_with_members(wrong: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    (member,) = driver.stable(static=True)
    assert driver.commit(("orders", 0, 5), by=member, **wrong).error is error
    assert driver.offsets() == ({("orders", 0): 5} if error is ErrorCode.NONE else {})


def test_commits_are_accepted_during_joins_and_refused_until_the_assignment() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.send_join(leader.member_id)
    assert driver.state() == "PreparingRebalance"
    assert driver.commit(("orders", 0, 5), by=follower).error is ErrorCode.NONE
    again = driver.join(follower.member_id)
    assert driver.state() == "CompletingRebalance"
    assert driver.commit(("orders", 0, 6), by=follower).error is ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(("orders", 0, 6), by=again).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.offsets() == {("orders", 0): 5}


def test_a_commit_restarts_the_session_timeout() -> None:
    driver = Driver()
    (member,) = driver.stable()
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        assert driver.commit(("orders", 0, 5), by=member).error is ErrorCode.NONE
    assert driver.state() == "Stable"


def test_metadata_that_is_too_long_fails_only_its_own_partition() -> None:
    driver = Driver()
    longest = GroupSettings().offset_metadata_bytes_max
    offsets = (
        OffsetToCommit("orders", 0, Offset(1), LeaderEpoch(-1), "x" * longest),
        OffsetToCommit("orders", 1, Offset(1), LeaderEpoch(-1), "x" * (longest + 1)),
    )
    committed = driver.commit(offsets=offsets)
    assert committed.errors == {("orders", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert driver.offsets() == {("orders", 0): 1}


def test_offsets_of_an_empty_group_can_be_deleted_even_if_they_do_not_exist() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 1), ("orders", 1, 1), ("other", 0, 1))
    deleted = driver.delete_offsets(("orders", 0), ("other", 0), ("never", 3))
    assert (deleted.error, deleted.errors) == (ErrorCode.NONE, {})
    assert driver.offsets() == driver.restarted().offsets() == {("orders", 1): 1}


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), ("other", 0, 1), by=member)
    deleted = driver.delete_offsets(("orders", 0), ("other", 0))
    assert deleted.errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert driver.offsets() == {("orders", 0): 1}


def test_only_the_current_subscription_protects_offsets_from_deletion() -> None:
    driver = Driver()
    (member,) = driver.stable()
    assert driver.delete_offsets(("orders", 0)).errors
    again = driver.join(member.member_id, protocols=offering("range", metadata=subscription("other", version=3)))
    driver.sync(again)
    assert not driver.delete_offsets(("orders", 0)).errors
    assert driver.delete_offsets(("other", 0)).errors


def test_consumers_with_unreadable_subscriptions_count_as_reading_every_topic() -> None:
    driver = Driver()
    driver.stable(protocols=offering("range", metadata=b"\x00\x01garbage"))
    assert driver.delete_offsets(("orders", 0)).errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("", ErrorCode.INVALID_GROUP_ID),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
        ("workers", ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_offsets_cannot_be_deleted_in_unknown_or_non_consumer_groups(group_id: str, error: ErrorCode) -> None:
    driver = Driver()
    driver.stable(group_id="workers", protocol_type="connect", protocols=offering("compatible"))
    assert driver.delete_offsets(("orders", 0), group_id=group_id).error is error


def test_deleting_a_topic_removes_its_offsets_from_all_groups() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), ("kept", 0, 1), by=member)
    driver.commit(("orders", 3, 1), group_id="simple")
    driver.delete_topics("orders", "never")
    for each in (driver, driver.restarted()):
        assert each.offsets() == {("kept", 0): 1}
        assert each.offsets("simple") == {}
