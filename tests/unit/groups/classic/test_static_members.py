"""Tests static members of classic groups: they may leave and return without a rebalance."""

from typing import Any

import pytest

from builders.groups.machine import REBALANCE_MS, SESSION_MS, Driver, offering, subscription
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.model.errors import ErrorCode


def test_a_returning_follower_keeps_its_assignment_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    back = driver.join(instance_id="i1")
    assert (back.error, back.generation, back.leader) == (ErrorCode.NONE, leader.generation, leader.member_id)
    assert back.member_id != follower.member_id
    assert (back.members, back.skip_assignment) == ((), False)
    assert driver.sync(back, instance_id="i1").assignment == follower.member_id.encode()
    assert driver.heartbeat(leader).error is ErrorCode.NONE
    assert driver.state() == "Stable"


def test_a_returning_leader_is_told_to_skip_the_assignment() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, static=True)
    back = driver.join(instance_id="i0")
    assert back.leader == back.member_id != leader.member_id
    assert back.skip_assignment
    assert {each.instance_id for each in back.members} == {"i0", "i1"}
    assert driver.state() == "Stable"


def test_a_returning_leader_with_an_older_version_is_answered_like_a_follower() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, static=True)
    back = driver.join(instance_id="i0", can_skip_assignment=False)
    assert (back.leader, back.skip_assignment, back.members) == (leader.member_id, False, ())
    assert driver.sync(back, instance_id="i0").assignment == leader.member_id.encode()


def test_the_new_member_id_of_a_returning_member_survives_a_restart() -> None:
    driver = Driver()
    driver.stable(2, static=True)
    back = driver.join(instance_id="i1")
    again = driver.restarted()
    assert back.member_id in {each.member_id for each in again.describe().members}
    assert again.heartbeat(back, instance_id="i1").error is ErrorCode.NONE


def test_requests_with_the_old_member_id_are_fenced() -> None:
    driver = Driver()
    _, old = driver.stable(2, static=True)
    driver.join(instance_id="i1")
    assert driver.heartbeat(old, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(old, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(old.member_id, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.commit(("t", 0, 1), by=old, instance_id="i1").error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.leave((old.member_id, "i1")).members[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_returning_member_starts_a_rebalance_when_it_changes_the_protocol() -> None:
    driver = Driver()
    driver.stable(2, static=True, protocols=offering("range", "sticky"))
    token = driver.send_join(instance_id="i1", protocols=offering("sticky"))
    assert token in driver.waiting
    assert driver.state() == "PreparingRebalance"


def test_a_returning_member_with_another_subscription_starts_no_rebalance() -> None:
    driver = Driver()
    driver.stable(2, static=True)
    back = driver.join(instance_id="i1", protocols=offering("range", metadata=subscription("other")))
    assert back.error is ErrorCode.NONE
    assert driver.state() == "Stable"
    assert subscription("other") in {each.metadata for each in driver.describe().members}


def test_a_returning_member_starts_a_rebalance_when_the_assignment_is_pending() -> None:
    driver = Driver()
    _, follower = driver.gathered(2, static=True)
    waiting = driver.send_sync(follower, instance_id="i1")
    driver.send_join(instance_id="i1")
    assert driver.answer(waiting, SyncResponse).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.state() == "PreparingRebalance"


def test_a_returning_member_fences_its_pending_join_during_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    waiting = driver.send_join(follower.member_id, instance_id="i1", protocols=offering("range", metadata=b"new"))
    back = driver.send_join(instance_id="i1")
    fenced = driver.answer(waiting, JoinResponse)
    assert (fenced.error, fenced.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower.member_id)
    driver.join(leader.member_id, instance_id="i0")
    assert driver.answer(back, JoinResponse).error is ErrorCode.NONE
    assert len(driver.describe().members) == 2


def test_join_of_a_new_static_member_waits_past_its_session_when_repeated() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.send_join(instance_id="new")
    token = driver.send_join(instance_id="new")
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat(member)
    assert token in driver.waiting
    driver.join(member.member_id)
    assert driver.answer(token, JoinResponse).error is ErrorCode.NONE


def test_a_full_group_accepts_its_returning_static_members() -> None:
    driver = Driver(members_max=2)
    driver.stable(2, static=True)
    assert driver.join(instance_id="i1").error is ErrorCode.NONE
    assert driver.join(instance_id="i2").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_is_removed_after_its_session_timeout() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, static=True)
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(leader)
    driver.pass_time(1)
    assert driver.state() == "PreparingRebalance"
    assert [each.instance_id for each in driver.describe().members] == ["i0"]


def test_a_rebalance_waits_when_only_absent_static_members_are_left() -> None:
    driver = Driver()
    other: dict[str, Any] = {"session_timeout_ms": REBALANCE_MS * 3}
    driver.stable(2, static=True, **other)
    driver.leave(("", "i0"))
    driver.pass_time(REBALANCE_MS + 1)
    assert driver.state() == "PreparingRebalance"
    token = driver.send_join(instance_id="i1", **other)
    joined = driver.answer(token, JoinResponse)
    assert (joined.error, joined.leader) == (ErrorCode.NONE, joined.member_id)


@pytest.mark.parametrize("members", [1, 3])
def test_a_rolling_restart_of_all_static_members_needs_no_rebalance(members: int) -> None:
    driver = Driver()
    before = driver.stable(members, static=True)
    for number in range(members):
        back = driver.join(instance_id=f"i{number}")
        assert back.generation == before[0].generation
        assert (
            driver.sync(back, instance_id=f"i{number}", assignments=()).assignment == before[number].member_id.encode()
        )
