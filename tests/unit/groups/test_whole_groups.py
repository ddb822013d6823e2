"""Tests groups as administrators see them (list, describe, delete), and groups after a restart."""

import pytest

from builders.groups.machine import REBALANCE_MS, SESSION_MS, Driver, offering, subscription
from millstream.groups.commands import DescribeConsumerGroup, ListGroups
from millstream.groups.responses import ConsumerGroupDescription, GroupDescription, GroupList, ListedGroup
from millstream.model.errors import ErrorCode


def in_all_states() -> Driver:
    """A driver with one group in each state."""
    driver = Driver()
    driver.commit(("orders", 0, 1), group_id="simple")
    driver.stable(group_id="stable")
    driver.gathered(group_id="completing")
    leader, _ = driver.stable(2, group_id="preparing")
    driver.send_join(leader.member_id, group_id="preparing")
    driver.stable(group_id="workers", protocol_type="connect", protocols=offering("compatible"))
    return driver


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ListGroups(), {"simple", "stable", "completing", "preparing", "workers"}),
        (ListGroups(states=("stable",)), {"stable", "workers"}),
        (ListGroups(states=("Empty", "PREPARINGREBALANCE")), {"simple", "preparing"}),
        (ListGroups(states=("nonsense",)), set()),
        (ListGroups(types=("Classic",)), {"simple", "stable", "completing", "preparing", "workers"}),
        (ListGroups(types=("consumer",)), set()),
        (ListGroups(states=("CompletingRebalance",), types=("classic",)), {"completing"}),
    ],
)
def test_groups_are_listed_by_state_and_type(command: ListGroups, expected: set[str]) -> None:
    assert {each.group_id for each in in_all_states().ask(command, GroupList).groups} == expected


def test_a_listed_group_shows_its_protocol_type_and_state() -> None:
    listed = in_all_states().ask(ListGroups(), GroupList).groups
    assert ListedGroup("simple", "", "Empty", "classic") in listed
    assert ListedGroup("workers", "connect", "Stable", "classic") in listed


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, static=True)
    described = driver.describe()
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert described.generation == leader.generation
    first = described.members[0]
    assert (first.member_id, first.instance_id) == (leader.member_id, "i0")
    assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")
    assert (first.metadata, first.assignment) == (subscription("orders"), leader.member_id.encode())


@pytest.mark.parametrize(
    ("group_id", "state"), [("preparing", "PreparingRebalance"), ("completing", "CompletingRebalance")]
)
def test_an_unstable_group_is_described_without_metadata_and_assignments(group_id: str, state: str) -> None:
    described = in_all_states().describe(group_id)
    assert (described.state, described.protocol) == (state, "")
    assert {(each.metadata, each.assignment) for each in described.members} == {(b"", b"")}


def test_an_unknown_group_is_described_as_dead() -> None:
    described = Driver().describe("unknown")
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "unknown" in described.detail
    assert isinstance(described, GroupDescription)


@pytest.mark.parametrize("group_id", ["unknown", "stable"])
def test_a_classic_group_is_not_described_as_a_consumer_group(group_id: str) -> None:
    described = in_all_states().ask(DescribeConsumerGroup(group_id), ConsumerGroupDescription)
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group_id in described.detail


@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("completing", ErrorCode.NON_EMPTY_GROUP),
        ("preparing", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
    ],
)
def test_only_a_group_without_members_can_be_deleted(group_id: str, error: ErrorCode) -> None:
    assert in_all_states().delete(group_id).error is error


def test_deleting_a_group_removes_its_records_and_offsets_from_the_log() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), by=member)
    driver.leave(member.member_id)
    told = driver.join(knows_member_id_required=True)
    assert driver.delete().error is ErrorCode.NONE
    for each in (driver, driver.restarted()):
        assert list(each.machine.group_ids()) == []
        assert list(each.machine.dump()) == []
        assert each.machine.next_deadline_ms is None
    assert driver.join(told.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join().generation == 1


def test_members_continue_after_a_restart_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.commit(("orders", 0, 5), by=follower)
    driver.pass_time(SESSION_MS - 1)
    again = driver.restarted()
    assert again.describe() == driver.describe()
    again.pass_time(SESSION_MS - 1)
    assert again.heartbeat(leader).error is again.heartbeat(follower).error is ErrorCode.NONE
    assert again.commit(("orders", 0, 6), by=follower).error is ErrorCode.NONE
    assert again.join(follower.member_id).generation == leader.generation
    again.send_join(leader.member_id)
    assert again.state() == "PreparingRebalance"


def test_members_that_do_not_return_after_a_restart_expire_with_their_session() -> None:
    driver = Driver()
    driver.stable(2)
    again = driver.restarted()
    again.pass_time(SESSION_MS)
    again.pass_time(REBALANCE_MS)
    assert again.state() == "Empty"


def test_a_crash_during_a_rebalance_restores_the_last_logged_generation() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.send_join(leader.member_id)
    driver.join(follower.member_id)
    again = driver.restarted()
    assert again.describe().generation == leader.generation
    assert again.state() == "Stable"


def test_a_loaded_group_that_exceeds_the_member_limit_rebalances() -> None:
    driver = Driver()
    driver.stable(3)
    smaller = Driver(driver.log, driver.at_ms, members_max=2)
    assert smaller.state() == "PreparingRebalance"
