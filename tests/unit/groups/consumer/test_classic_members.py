"""Tests members that use the classic protocol in a group of the newer one: their answers and their errors."""

from typing import Any

import pytest

from builders.groups.consumers import REBALANCE_MS, SESSION_MS, ClassicConsumer, Consumer, describe
from builders.groups.machine import Driver, offering, subscription
from builders.groups.topics import Topics
from millstream.groups.responses import JoinResponse, LeftMember
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_versioned

ORDERS = offering("range", metadata=subscription("orders"))


def _mixed(**settings: Any) -> tuple[Driver, Consumer, JoinResponse]:
    """Returns a group with a member of each protocol. The classic one has joined, but has not sent SyncGroup yet."""
    driver = Driver(topics=Topics(orders=4), **settings)
    new = Consumer(driver, "new")
    new.join()
    joined = driver.join(protocols=ORDERS, rebalance_timeout_ms=REBALANCE_MS, session_timeout_ms=SESSION_MS)
    return driver, new, joined


def test_a_join_is_answered_immediately_and_names_no_leader() -> None:
    driver, _, joined = _mixed()
    assert (joined.error, joined.generation, joined.leader, joined.members) == (ErrorCode.NONE, 2, "", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert not driver.waiting


def test_a_sync_returns_the_assignment_in_the_version_of_the_member() -> None:
    driver, new, joined = _mixed()
    new.beat()
    new.beat()
    joined = driver.join(joined.member_id, protocols=ORDERS)
    synced = driver.sync(joined)
    assert (synced.error, synced.protocol_type, synced.protocol_name) == (ErrorCode.NONE, "consumer", "range")
    assert synced.assignment[:2] == b"\x00\x01"
    (row,) = read_versioned("ConsumerProtocolAssignment", synced.assignment)["assigned_partitions"]
    assert {(row["topic"], number) for number in row["partitions"]} == new.image.partitions - new.places


def test_a_classic_member_is_asked_to_rejoin_once_partitions_are_free_for_it() -> None:
    driver, new, joined = _mixed()
    assert driver.heartbeat(joined).error is ErrorCode.NONE, "what it is to get has not been given back yet"
    new.beat()
    new.beat()
    assert driver.heartbeat(joined).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_asks_the_member_to_rejoin_when_its_epoch_is_outdated() -> None:
    driver, _, joined = _mixed()
    Consumer(driver, "other").join()
    assert driver.sync(joined).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("generation", 1, ErrorCode.ILLEGAL_GENERATION),
        ("member_id", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("member_id", "new", ErrorCode.UNKNOWN_MEMBER_ID),
        ("instance_id", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("protocol_name", "roundrobin", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("protocol_type", "connect", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_and_heartbeat_of_a_wrong_member_or_protocol_are_refused(field: str, value: Any, error: ErrorCode) -> None:
    driver, _, joined = _mixed()
    assert driver.sync(joined, **{field: value}).error is error
    if not field.startswith("protocol"):
        assert driver.heartbeat(joined, **{field: value}).error is error


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": offering("sticky", metadata=subscription("orders"))}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": offering("range", metadata=b"\x00\x01\xff")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"instance_id": "nobody", "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_invalid_join_is_refused_and_writes_no_records(other: dict[str, Any], error: ErrorCode) -> None:
    driver, _, _ = _mixed()
    written = len(driver.log)
    assert driver.join(**({"protocols": ORDERS} | other)).error is error
    assert len(driver.log) == written


def test_a_full_group_refuses_new_classic_members() -> None:
    driver, _, joined = _mixed(members_max=2)
    assert driver.join(protocols=ORDERS).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(joined.member_id, protocols=ORDERS).error is ErrorCode.NONE


@pytest.mark.parametrize("silent_for_ms", [SESSION_MS, REBALANCE_MS])
def test_a_member_that_is_silent_or_never_syncs_is_removed(silent_for_ms: int) -> None:
    driver, new, joined = _mixed()
    if silent_for_ms == SESSION_MS:
        driver.sync(joined)
    for _ in range(3):
        driver.pass_time(silent_for_ms // 3)
        new.beat()
    assert [member.member_id for member in describe(driver).members] == ["new"]


def test_a_member_that_does_not_rejoin_when_asked_is_removed() -> None:
    driver, new, joined = _mixed()
    driver.sync(joined)
    for _ in range(6):
        driver.heartbeat(joined)
        new.beat()
        driver.pass_time(REBALANCE_MS // 3)
    assert [member.member_id for member in describe(driver).members] == ["new"]


def test_leaving_members_and_unknown_ids_get_separate_answers() -> None:
    driver, new, joined = _mixed()
    left = driver.leave(joined.member_id, "nobody")
    assert left.members == (
        LeftMember(joined.member_id, None, ErrorCode.NONE),
        LeftMember("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
    )
    new.beat()
    assert len(new.places) == 4


def test_a_returning_static_classic_member_keeps_its_partitions() -> None:
    driver = Driver(topics=Topics(orders=4))
    new, old = Consumer(driver, "new"), ClassicConsumer(driver, instance_id="i")
    for _ in range(6):
        new.beat()
        old.step()
    returned = ClassicConsumer(driver, instance_id="i")
    assert returned.step() is ErrorCode.NONE
    assert returned.places == old.places
    assert returned.member_id != old.member_id
    assert old.step() is ErrorCode.FENCED_INSTANCE_ID
