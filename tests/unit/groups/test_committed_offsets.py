"""Committed offsets: who may commit and delete them, and what is found again."""

from typing import Any

import pytest

from builders.groups.machine import SESSION_MS, WALL_MS, Driver, offering, subscription
from millstream.groups.commands import FetchOffsets, OffsetToCommit
from millstream.groups.responses import CommittedOffset, OffsetsResponse
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode


def test_what_was_committed_is_found_again_with_everything_that_was_said() -> None:
    driver = Driver()
    offsets = (OffsetToCommit("orders", 0, 42, 7, "note"), OffsetToCommit("orders", 1, 43, -1, ""))
    assert driver.commit(offsets=offsets).error is ErrorCode.NONE
    when_ms = WALL_MS + driver.at_ms
    found = driver.ask(FetchOffsets("g", (("orders", 0), ("orders", 9), ("other", 0))), OffsetsResponse)
    assert found == OffsetsResponse(offsets={("orders", 0): CommittedOffset(42, 7, "note", when_ms)})
    assert driver.offsets() == {("orders", 0): 42, ("orders", 1): 43}


def test_a_group_that_nobody_knows_has_no_offsets_and_that_is_no_error() -> None:
    assert Driver().ask(FetchOffsets("unknown", (("orders", 0),)), OffsetsResponse) == OffsetsResponse()
    assert Driver().ask(FetchOffsets("unknown", None), OffsetsResponse) == OffsetsResponse()


def test_a_later_commit_counts_also_if_it_goes_back() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 42))
    driver.commit(("orders", 0, 7))
    assert driver.offsets() == {("orders", 0): 7}


def test_a_commit_from_outside_makes_a_simple_group() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 1))
    described = driver.describe()
    assert (described.state, described.protocol_type, described.members) == ("Empty", "", ())


def test_a_group_without_a_name_can_have_offsets_as_simple_consumers_use_it() -> None:
    driver = Driver()
    assert driver.commit(("orders", 0, 1), group_id="").error is ErrorCode.NONE
    assert driver.offsets("") == {("orders", 0): 1}


@pytest.mark.parametrize(
    ("knows_stale_epoch", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_member_cannot_commit_for_a_group_that_is_not_there(knows_stale_epoch: bool, error: ErrorCode) -> None:
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
def test_in_a_group_with_members_only_they_commit(wrong: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    (member,) = driver.stable(static=True)
    assert driver.commit(("orders", 0, 5), by=member, **wrong).error is error
    assert driver.offsets() == ({("orders", 0): 5} if error is ErrorCode.NONE else {})


def test_while_the_group_gathers_its_members_may_commit_and_before_it_shares_out_they_may_not() -> None:
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


def test_a_commit_is_a_sign_of_life() -> None:
    driver = Driver()
    (member,) = driver.stable()
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        assert driver.commit(("orders", 0, 5), by=member).error is ErrorCode.NONE
    assert driver.state() == "Stable"


def test_a_note_that_is_too_long_refuses_its_partition_only() -> None:
    driver = Driver()
    longest = GroupSettings().offset_metadata_bytes_max
    offsets = (
        OffsetToCommit("orders", 0, 1, -1, "x" * longest),
        OffsetToCommit("orders", 1, 1, -1, "x" * (longest + 1)),
    )
    committed = driver.commit(offsets=offsets)
    assert committed.errors == {("orders", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert driver.offsets() == {("orders", 0): 1}


def test_offsets_of_an_empty_group_can_be_deleted_and_those_that_are_not_there_too() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 1), ("orders", 1, 1), ("other", 0, 1))
    deleted = driver.delete_offsets(("orders", 0), ("other", 0), ("never", 3))
    assert (deleted.error, deleted.errors) == (ErrorCode.NONE, {})
    assert driver.offsets() == driver.restarted().offsets() == {("orders", 1): 1}


def test_offsets_of_topics_that_consumers_read_stay() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), ("other", 0, 1), by=member)
    deleted = driver.delete_offsets(("orders", 0), ("other", 0))
    assert deleted.errors == {("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert driver.offsets() == {("orders", 0): 1}


def test_a_subscription_that_has_changed_counts_as_it_is_now() -> None:
    driver = Driver()
    (member,) = driver.stable()
    assert driver.delete_offsets(("orders", 0)).errors
    again = driver.join(member.member_id, protocols=offering("range", metadata=subscription("other", version=3)))
    driver.sync(again)
    assert not driver.delete_offsets(("orders", 0)).errors
    assert driver.delete_offsets(("other", 0)).errors


def test_consumers_that_cannot_be_understood_are_taken_to_read_everything() -> None:
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
def test_offsets_cannot_be_deleted_where_nobody_knows_who_needs_them(group_id: str, error: ErrorCode) -> None:
    driver = Driver()
    driver.stable(group_id="workers", protocol_type="connect", protocols=offering("compatible"))
    assert driver.delete_offsets(("orders", 0), group_id=group_id).error is error


def test_with_a_topic_go_the_offsets_that_all_groups_have_in_it() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), ("kept", 0, 1), by=member)
    driver.commit(("orders", 3, 1), group_id="simple")
    driver.delete_topics("orders", "never")
    for each in (driver, driver.restarted()):
        assert each.offsets() == {("kept", 0): 1}
        assert each.offsets("simple") == {}
