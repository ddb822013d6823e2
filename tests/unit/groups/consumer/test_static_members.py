"""Tests static members of groups of the consumer protocol: they leave temporarily, and return to their partitions."""

import pytest

from builders.groups.consumers import SESSION_MS, Consumer, describe, request
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.commands import LeaveGroup, LeavingMember
from millstream.groups.responses import ConsumerHeartbeatResponse, LeaveResponse, LeftMember
from millstream.model.errors import ErrorCode


def _pair() -> tuple[Driver, Consumer, Consumer]:
    driver = Driver(topics=Topics(orders=6))
    first, second = (Consumer(driver, name, instance_id=f"i-{name}") for name in "ab")
    for _ in range(4):
        first.beat()
        second.beat()
    return driver, first, second


def test_a_returning_static_member_gets_its_partitions_without_a_rebalance() -> None:
    driver, first, second = _pair()
    had, epoch = first.places, first.epoch
    answer = first.leave(epoch=-2)
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, -2)
    second.beat()
    returned = Consumer(driver, "c", instance_id="i-a")
    returned.join()
    assert (returned.places, returned.epoch) == (had, epoch)
    assert second.beat().assignment is None
    assert describe(driver).state == "Stable"
    assert {member.member_id for member in describe(driver).members} == {"b", "c"}


def test_partitions_of_an_absent_static_member_move_after_its_session_timeout() -> None:
    driver, first, second = _pair()
    first.leave(epoch=-2)
    driver.pass_time(SESSION_MS // 2)
    second.beat()
    assert len(second.places) == 3
    driver.pass_time(SESSION_MS // 2)
    second.beat()
    assert len(second.places) == 6


def test_an_instance_id_in_use_cannot_be_taken_by_another_member() -> None:
    driver, *_ = _pair()
    thief = Consumer(driver, "c", instance_id="i-a")
    answer = driver.ask(thief._request(True), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_may_repeat_its_join_with_the_same_member_id() -> None:
    _, first, _ = _pair()
    first.join()
    assert len(first.places) == 3


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_requests_with_a_replaced_member_id_are_fenced(epoch: int) -> None:
    driver, first, _ = _pair()
    first.leave(epoch=-2)
    Consumer(driver, "c", instance_id="i-a").join()
    answer = driver.ask(request("a", epoch, instance_id="i-a"), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_a_request_with_an_unknown_instance_id_gets_unknown_member_id(epoch: int) -> None:
    driver, *_ = _pair()
    answer = driver.ask(request("a", epoch, instance_id="nobody"), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_absent_member_is_fenced_until_it_joins_again() -> None:
    driver, first, _ = _pair()
    epoch = first.epoch
    first.leave(epoch=-2)
    answer = driver.ask(request("a", epoch, instance_id="i-a"), ConsumerHeartbeatResponse)
    assert answer.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_member_that_leaves_permanently_frees_its_partitions() -> None:
    _, first, second = _pair()
    first.leave()
    second.beat()
    assert len(second.places) == 6


def test_an_operator_can_remove_a_member_by_its_instance_id() -> None:
    driver, _, second = _pair()
    left = driver.ask(LeaveGroup("g", (LeavingMember("", "i-a"), LeavingMember("", "i-x"))), LeaveResponse)
    assert left.members == (
        LeftMember("", "i-a", ErrorCode.NONE),
        LeftMember("", "i-x", ErrorCode.UNKNOWN_MEMBER_ID),
    )
    second.beat()
    assert len(second.places) == 6


def test_an_absent_member_keeps_its_partitions_across_a_restart() -> None:
    driver, first, _ = _pair()
    had = first.places
    first.leave(epoch=-2)
    returned = Consumer(driver.restarted(), "c", instance_id="i-a")
    returned.join()
    assert returned.places == had
