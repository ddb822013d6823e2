"""Tests heartbeats, session timeouts and leaving in classic groups."""

from typing import Any

import pytest

from builders.groups.machine import REBALANCE_MS, SESSION_MS, Driver
from millstream.groups.responses import JoinResponse, LeftMember, SyncResponse
from millstream.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "i0"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "i0"}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ],
)
def test_a_heartbeat_requires_a_member_of_the_current_generation(wrong: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    (member,) = driver.stable(static=True)
    assert driver.heartbeat(member, **wrong).error is error


def test_heartbeats_keep_a_member_and_silence_removes_it() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    for _ in range(5):
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(leader).error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.heartbeat(follower).error is ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.join(leader.member_id)
    assert (len(again.members), again.generation) == (1, leader.generation + 1)


def test_a_heartbeat_during_a_rebalance_reports_it_and_keeps_the_session() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, rebalance_timeout_ms=REBALANCE_MS)
    token = driver.send_join(leader.member_id)
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(follower).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower.member_id)
    assert driver.answer(token, JoinResponse).error is ErrorCode.NONE


def test_a_heartbeat_before_the_assignment_succeeds() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        assert driver.heartbeat(leader).error is driver.heartbeat(follower).error is ErrorCode.NONE


def test_a_member_that_waits_for_its_join_does_not_expire() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    token = driver.send_join(leader.member_id)
    for _ in range(4):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat(follower)
    assert token in driver.waiting
    driver.join(follower.member_id)
    assert len(driver.answer(token, JoinResponse).members) == 2


def test_a_member_that_waits_for_its_assignment_does_not_expire() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    token = driver.send_sync(follower)
    for _ in range(4):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat(leader)
    driver.sync(leader)
    assert driver.answer(token, SyncResponse).error is ErrorCode.NONE
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(follower).error is ErrorCode.NONE


def test_a_group_is_empty_after_its_last_member_has_expired() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 5), by=member)
    driver.pass_time(SESSION_MS)
    assert driver.state() == "Empty"
    assert driver.describe().members == ()
    assert driver.offsets() == {("orders", 0): 5}


def test_a_leaving_member_starts_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert driver.leave(leader.member_id).members == (LeftMember(leader.member_id, None, ErrorCode.NONE),)
    assert driver.heartbeat(follower).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(follower.member_id).leader == follower.member_id


def test_several_members_leave_in_one_request_with_an_answer_each() -> None:
    driver = Driver()
    zero, one, two = driver.stable(3, static=True)
    left = driver.leave((zero.member_id, None), ("", "i1"), ("nobody", "i2"), ("", "nobody"), ("", None))
    assert left.error is ErrorCode.NONE
    assert [each.error for each in left.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [each.member_id for each in driver.describe().members] == [two.member_id]
    assert driver.heartbeat(one).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_an_unknown_group_reports_unknown_members() -> None:
    left = Driver().leave("somebody", ("", "i1"))
    assert (left.error, {each.error for each in left.members}) == (ErrorCode.NONE, {ErrorCode.UNKNOWN_MEMBER_ID})
    assert Driver().leave("somebody", group_id="").error is ErrorCode.INVALID_GROUP_ID


def test_a_client_may_leave_with_an_issued_id_before_it_has_joined() -> None:
    driver = Driver()
    (member,) = driver.stable()
    told = driver.join(knows_member_id_required=True)
    token = driver.send_join(member.member_id)
    assert driver.leave(told.member_id).members[0].error is ErrorCode.NONE
    assert driver.answer(token, JoinResponse).error is ErrorCode.NONE


def test_a_leave_with_a_never_joined_member_id_starts_no_rebalance() -> None:
    driver = Driver()
    driver.stable()
    told = driver.join(knows_member_id_required=True)
    driver.leave(told.member_id)
    assert driver.state() == "Stable"


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_pending_requests_of_leaving_members_are_answered(state: str) -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    if state == "PreparingRebalance":
        driver.sync(leader)
        driver.send_join(leader.member_id)
        driver.send_join()
    else:
        driver.send_sync(follower)
    assert driver.state() == state
    driver.leave(leader.member_id, follower.member_id)
    assert not driver.waiting
