"""Tests SyncGroup: the leader assigns partitions, and every member gets its assignment once it is in the log."""

from typing import Any

import pytest

from builders.groups.machine import REBALANCE_MS, Driver, offering
from millstream.groups.commands import AssignedBytes
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.model.errors import ErrorCode


def test_members_wait_for_the_leader_and_then_get_their_assignments() -> None:
    driver = Driver()
    leader, *others = driver.gathered(3)
    tokens = [driver.send_sync(each) for each in others]
    assert all(token in driver.waiting for token in tokens)
    assert driver.sync(leader).assignment == leader.member_id.encode()
    for each, token in zip(others, tokens, strict=True):
        synced = driver.answer(token, SyncResponse)
        assert (synced.error, synced.assignment) == (ErrorCode.NONE, each.member_id.encode())
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert driver.state() == "Stable"


def test_a_member_that_the_leader_omits_gets_an_empty_assignment() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    driver.sync(leader, assignments=(AssignedBytes("nobody", b"x"),))
    assert driver.sync(follower) == SyncResponse(protocol_type="consumer", protocol_name="range")


def test_a_later_or_repeated_sync_returns_the_same_assignment() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    driver.sync(leader)
    assert driver.sync(follower).assignment == driver.sync(follower).assignment == follower.member_id.encode()


def test_the_group_is_logged_only_when_it_becomes_stable() -> None:
    driver = Driver()
    leader, _ = driver.gathered(2)
    assert driver.log == []
    driver.sync(leader)
    assert len(driver.log) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None}, ErrorCode.NONE),
    ],
)
def test_a_sync_requires_a_member_of_the_current_generation(wrong: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    (member,) = driver.gathered()
    assert driver.sync(member, **wrong).error is error


def test_a_sync_during_a_rebalance_gets_rebalance_in_progress() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.send_join(leader.member_id)
    assert driver.sync(follower).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_pending_sync_is_told_to_rejoin_when_a_new_rebalance_starts() -> None:
    driver = Driver()
    _, follower = driver.gathered(2)
    token = driver.send_sync(follower)
    driver.send_join()
    assert driver.answer(token, SyncResponse).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.state() == "PreparingRebalance"


def test_a_repeated_sync_answers_both_requests() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    lost, second = driver.send_sync(follower), driver.send_sync(follower)
    assert driver.answer(lost, SyncResponse).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader)
    assert driver.answer(second, SyncResponse).assignment == follower.member_id.encode()


def test_members_that_do_not_sync_in_time_are_removed_by_a_rebalance() -> None:
    driver = Driver()
    leader, silent = driver.gathered(2, session_timeout_ms=REBALANCE_MS * 2)
    driver.sync(leader)
    driver.pass_time(REBALANCE_MS - 1)
    assert driver.state() == "Stable"
    driver.pass_time(1)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(silent).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_sends_no_assignment_in_time_is_replaced() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2, session_timeout_ms=REBALANCE_MS * 2)
    token = driver.send_sync(follower)
    driver.pass_time(REBALANCE_MS)
    assert driver.answer(token, SyncResponse).error is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(follower.member_id)
    assert (again.leader, again.generation) == (follower.member_id, leader.generation + 1)


def test_the_sync_timeout_is_cancelled_after_all_members_have_synced() -> None:
    driver = Driver()
    members = driver.stable(2, session_timeout_ms=REBALANCE_MS * 2)
    driver.pass_time(REBALANCE_MS)
    assert driver.state() == "Stable"
    assert {driver.heartbeat(each).error for each in members} == {ErrorCode.NONE}


def test_an_assignment_from_an_old_generation_is_refused() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    token = driver.send_join(follower.member_id, protocols=offering("range", metadata=b"new"))
    driver.join(leader.member_id)
    driver.send_sync(driver.answer(token, JoinResponse))
    assert driver.sync(leader).error is ErrorCode.ILLEGAL_GENERATION
