"""Tests how often a group of the consumer protocol computes assignments: immediately after a quiet time, then with a
minimum interval."""

import pytest

from builders.groups.consumers import ClassicConsumer, Consumer, describe
from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.groups.consumer.records import TARGET, TARGET_EPOCH
from millstream.groups.records import key_version
from millstream.groups.responses import ConsumerHeartbeatResponse
from millstream.model.errors import ErrorCode

INTERVAL_MS = 1_000


def driver_of(partitions: int = 6, interval_ms: int = INTERVAL_MS) -> Driver:
    return Driver(topics=Topics(orders=partitions), consumer_assignment_interval_ms=interval_ms)


def joined(driver: Driver, count: int, first: int = 0) -> list[Consumer]:
    consumers = [Consumer(driver, f"m{number}") for number in range(first, first + count)]
    for consumer in consumers:
        assert consumer.join().error is ErrorCode.NONE
    return consumers


def written(driver: Driver, kind: int) -> int:
    return sum(key_version(record.key) == kind for record in driver.log)


def test_members_that_join_together_share_one_assignment() -> None:
    driver = driver_of()
    first, *others = joined(driver, 6)
    assert len(first.places) == 6
    assert not any(other.places for other in others)
    assert (describe(driver).state, describe(driver).assignment_epoch) == ("Assigning", 1)
    driver.pass_time(INTERVAL_MS - 1)
    assert written(driver, TARGET_EPOCH) == 1
    driver.pass_time(1)
    assert written(driver, TARGET_EPOCH) == 2
    assert describe(driver).state == "Reconciling"
    for _ in range(2):
        for consumer in (first, *others):
            consumer.beat()
    assert [len(consumer.places) for consumer in (first, *others)] == [1] * 6
    assert describe(driver).state == "Stable"


def test_members_keep_assignment_and_epoch_until_the_next_assignment() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    (second,) = joined(driver, 1, first=1)
    assert (second.epoch, second.places) == (first.epoch, set())
    first.beat()
    answer = first.beat()
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, first.epoch, None)
    assert len(first.places) == 6


def test_a_change_after_a_quiet_interval_is_assigned_immediately() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    driver.pass_time(INTERVAL_MS)
    joined(driver, 1, first=1)
    assert written(driver, TARGET_EPOCH) == 2
    assert len(first.beat().assignment or ()) == 1
    assert len(first.places) == 3


def test_a_change_reverted_within_the_interval_moves_no_partitions() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    (second,) = joined(driver, 1, first=1)
    second.leave()
    driver.pass_time(INTERVAL_MS)
    assert first.beat().assignment is None
    assert len(first.places) == 6


def test_only_changed_target_assignments_are_written() -> None:
    driver = driver_of(partitions=100)
    joined(driver, 10)
    driver.pass_time(INTERVAL_MS)
    before = written(driver, TARGET)
    assert before == 1 + 10
    driver.pass_time(INTERVAL_MS)
    Consumer(driver, "reads nothing yet", topics=("later",)).join()
    assert written(driver, TARGET) == before + 1


@pytest.mark.parametrize("interval_ms", [0, 1])
def test_a_large_group_waits_longer_unless_the_interval_is_zero(interval_ms: int) -> None:
    driver = driver_of(partitions=1_000, interval_ms=interval_ms)
    joined(driver, 10)
    driver.pass_time(1)
    assert written(driver, TARGET_EPOCH) == (10 if interval_ms == 0 else 1)
    driver.pass_time(1_000)
    assert describe(driver).assignment_epoch == describe(driver).group_epoch


def test_an_empty_group_computes_no_assignment() -> None:
    driver = driver_of()
    members = joined(driver, 2)
    for member in members:
        member.leave()
    driver.pass_time(10 * INTERVAL_MS)
    assert written(driver, TARGET_EPOCH) == 1
    assert describe(driver).state == "Empty"


def test_a_pending_assignment_is_computed_at_the_first_heartbeat_after_a_restart() -> None:
    driver = driver_of()
    first, second = joined(driver, 2)
    restarted = driver.restarted()
    assert describe(restarted).state == "Assigning"
    first.move_to(restarted)
    second.move_to(restarted)
    answer: ConsumerHeartbeatResponse = first.beat()
    assert answer.error is ErrorCode.NONE
    assert len(first.places) == 3


def test_a_classic_member_is_asked_to_rejoin_when_it_can_get_partitions() -> None:
    driver = driver_of()
    (new,) = joined(driver, 1)
    classic = ClassicConsumer(driver, is_cooperative=True)
    assert [classic.step() for _ in range(3)] == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE, ErrorCode.NONE]
    assert classic.places == set()
    driver.pass_time(INTERVAL_MS)
    assert classic.step() is ErrorCode.REBALANCE_IN_PROGRESS
    new.beat()
    new.beat()
    for _ in range(3):
        classic.step()
    assert (len(classic.places), len(new.places)) == (3, 3)


def test_a_classic_member_is_asked_to_rejoin_after_another_member_has_left() -> None:
    driver = driver_of()
    (new,) = joined(driver, 1)
    (other,) = joined(driver, 1, first=1)
    classic = ClassicConsumer(driver)
    for _ in range(2):
        classic.step()
    other.leave()
    driver.pass_time(INTERVAL_MS)
    assert classic.step() is ErrorCode.REBALANCE_IN_PROGRESS
    assert describe(driver).assignment_epoch == describe(driver).group_epoch
    assert new.beat().error is ErrorCode.NONE
