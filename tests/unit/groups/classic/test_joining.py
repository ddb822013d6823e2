"""Tests JoinGroup in classic groups: which members are accepted, and which answers they get when."""

from typing import Any

import pytest

from builders.groups.machine import REBALANCE_MS, SESSION_MS, Driver, offering, subscription
from millstream.groups.classic.rebalance import NEW_MEMBER_TIMEOUT_MS
from millstream.groups.responses import JoinResponse
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode


def test_the_first_member_becomes_leader_and_gets_the_member_list() -> None:
    driver = Driver()
    joined = driver.join()
    assert joined.error is ErrorCode.NONE
    assert joined.generation == 1
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("client-")
    assert [each.member_id for each in joined.members] == [joined.member_id]
    assert joined.members[0].metadata == subscription("orders")
    assert not joined.skip_assignment
    assert driver.state() == "CompletingRebalance"


def test_only_the_leader_gets_the_member_list() -> None:
    leader, *others = Driver().gathered(3)
    assert {each.member_id for each in leader.members} == {leader.member_id, *(other.member_id for other in others)}
    assert [other.members for other in others] == [(), ()]
    assert {other.leader for other in others} == {leader.member_id}
    assert len({each.generation for each in (leader, *others)}) == 1


def test_a_new_dynamic_member_gets_an_id_and_joins_again_with_it() -> None:
    driver = Driver()
    told = driver.join(knows_member_id_required=True)
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.state() == "Empty"
    joined = driver.join(told.member_id, knows_member_id_required=True)
    assert joined.error is ErrorCode.NONE
    assert joined.member_id == told.member_id


def test_a_static_member_joins_with_one_request() -> None:
    joined = Driver().join(instance_id="one", knows_member_id_required=True)
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("one-")


def test_an_issued_member_id_expires_after_the_session_timeout() -> None:
    driver = Driver()
    told = driver.join(knows_member_id_required=True)
    driver.pass_time(SESSION_MS)
    assert driver.join(told.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_members_that_got_an_id() -> None:
    driver = Driver()
    first = driver.join()
    driver.sync(first)
    told = driver.join(knows_member_id_required=True)
    assert driver.state() == "Stable"
    again = driver.send_join(first.member_id)
    assert again in driver.waiting
    second = driver.join(told.member_id)
    assert driver.answer(again, JoinResponse).generation == second.generation == 2


def test_a_rebalance_completes_when_an_expected_member_does_not_join_in_time() -> None:
    driver = Driver()
    (first,) = driver.stable()
    driver.join(knows_member_id_required=True)
    again = driver.send_join(first.member_id)
    driver.pass_time(SESSION_MS)
    assert driver.answer(again, JoinResponse).generation == 2


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": GroupSettings().session_timeout_min_ms - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": GroupSettings().session_timeout_max_ms + 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_invalid_join_is_refused_and_creates_no_group(wrong: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    joined = driver.join(**wrong)
    assert joined.error is error
    assert joined.member_id == wrong.get("member_id", "")
    assert list(driver.machine.group_ids()) == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": offering("roundrobin")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "i0"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_a_join_with_another_protocol_or_unknown_id_is_refused_without_effect(
    wrong: dict[str, Any], error: ErrorCode
) -> None:
    driver = Driver()
    driver.stable(2, static=True)
    assert driver.join(**wrong).error is error
    assert driver.state() == "Stable"


def test_the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() -> None:
    driver = Driver()
    first = driver.join(protocols=offering("sticky", "range", "old"))
    second = driver.send_join(protocols=offering("new", "range", "sticky"))
    third = driver.send_join(protocols=offering("range", "sticky"))
    driver.join(first.member_id, protocols=offering("sticky", "range", "old"))
    assert {driver.answer(each, JoinResponse).protocol_name for each in (second, third)} == {"range"}


def test_an_empty_group_may_restart_with_another_protocol_type() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    again = driver.join(protocol_type="connect", protocols=offering("compatible"))
    assert (again.error, again.protocol_type, again.generation) == (ErrorCode.NONE, "connect", 3)


def test_an_empty_group_extends_its_initial_delay_while_members_join() -> None:
    driver = Driver(initial_rebalance_delay_ms=1_000)
    tokens = [driver.send_join()]
    for _ in range(3):
        driver.pass_time(900)
        tokens.append(driver.send_join())
    driver.pass_time(1_299)
    assert len(driver.waiting) == 4
    driver.pass_time(1_000)
    joined = [driver.answer(token, JoinResponse) for token in tokens]
    assert {(each.error, each.generation) for each in joined} == {(ErrorCode.NONE, 1)}
    assert max(len(each.members) for each in joined) == 4


def test_the_initial_delay_is_limited_by_the_rebalance_timeout() -> None:
    driver = Driver(initial_rebalance_delay_ms=1_000)
    first = driver.send_join(rebalance_timeout_ms=3_500)
    for _ in range(7):
        assert first in driver.waiting
        driver.pass_time(500)
        driver.send_join(rebalance_timeout_ms=3_500)
    assert driver.answer(first, JoinResponse).generation == 1


def test_an_unchanged_follower_that_rejoins_gets_the_current_generation() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    again = driver.join(follower.member_id)
    assert (again.error, again.generation, again.leader) == (ErrorCode.NONE, leader.generation, leader.member_id)
    assert driver.state() == "Stable"


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_a_member_that_rejoins_with_changed_metadata_starts_a_rebalance(state: str) -> None:
    driver = Driver()
    leader, follower = driver.gathered(2) if state == "CompletingRebalance" else driver.stable(2)
    assert driver.state() == state
    token = driver.send_join(follower.member_id, protocols=offering("range", metadata=subscription("other")))
    assert driver.state() == "PreparingRebalance"
    again = driver.join(leader.member_id)
    assert again.generation == driver.answer(token, JoinResponse).generation == leader.generation + 1


def test_a_leader_that_rejoins_a_stable_group_starts_a_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable(2)
    driver.send_join(leader.member_id)
    assert driver.state() == "PreparingRebalance"


def test_a_repeated_join_before_the_assignment_gets_the_same_answer() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    assert driver.join(leader.member_id) == leader
    assert driver.join(follower.member_id) == follower
    assert driver.state() == "CompletingRebalance"


def test_a_repeated_join_during_a_rebalance_answers_both_requests() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    lost = driver.send_join(follower.member_id, protocols=offering("range", metadata=b"new"))
    second = driver.send_join(follower.member_id, protocols=offering("range", metadata=b"new"))
    assert driver.answer(lost, JoinResponse).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(leader.member_id)
    assert driver.answer(second, JoinResponse).error is ErrorCode.NONE


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, session_timeout_ms=REBALANCE_MS * 2)
    token = driver.send_join(follower.member_id, protocols=offering("range", metadata=b"new"))
    driver.pass_time(REBALANCE_MS - 1)
    assert token in driver.waiting
    driver.pass_time(1)
    joined = driver.answer(token, JoinResponse)
    assert (joined.leader, len(joined.members)) == (follower.member_id, 1)
    assert driver.heartbeat(leader).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_rejoin_remains_until_its_session_ends() -> None:
    driver = Driver()
    _, follower = driver.stable(2, static=True, session_timeout_ms=REBALANCE_MS * 2)
    token = driver.send_join(
        follower.member_id,
        instance_id="i1",
        protocols=offering("range", metadata=b"new"),
        session_timeout_ms=SESSION_MS,
    )
    driver.pass_time(REBALANCE_MS)
    joined = driver.answer(token, JoinResponse)
    assert joined.leader == follower.member_id
    assert {each.instance_id for each in joined.members} == {"i0", "i1"}


def test_a_new_member_is_removed_when_its_join_waits_too_long() -> None:
    driver = Driver()
    (leader,) = driver.stable(rebalance_timeout_ms=NEW_MEMBER_TIMEOUT_MS * 2)
    token = driver.send_join()
    for _ in range(0, NEW_MEMBER_TIMEOUT_MS, 5_000):
        driver.heartbeat(leader)
        driver.pass_time(5_000)
    assert driver.answer(token, JoinResponse).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_a_full_group_refuses_new_members(state: str) -> None:
    driver = Driver(members_max=2)
    leader, follower = driver.gathered(2) if state == "CompletingRebalance" else driver.stable(2)
    assert driver.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(leader).error is driver.heartbeat(follower).error is ErrorCode.NONE


def test_a_member_that_rejoins_too_late_is_refused_when_the_group_is_full() -> None:
    driver = Driver(members_max=2)
    leader, follower = driver.stable(2)
    first = driver.send_join(follower.member_id, protocols=offering("range", metadata=b"new"))
    newcomer = driver.send_join()
    assert driver.join(leader.member_id).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answer(first, JoinResponse).generation == driver.answer(newcomer, JoinResponse).generation
    assert len(driver.describe().members) == 2


def test_members_that_join_together_share_the_first_generation() -> None:
    driver = Driver(initial_rebalance_delay_ms=100)
    told = [driver.join(knows_member_id_required=True) for _ in range(20)]
    tokens = [driver.send_join(each.member_id, knows_member_id_required=True) for each in told]
    driver.pass_time(1_000)
    joined = [driver.answer(token, JoinResponse) for token in tokens]
    assert {(each.error, each.generation) for each in joined} == {(ErrorCode.NONE, 1)}
