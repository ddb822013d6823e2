"""How often a group of the new protocol shares out: at once when it was quiet, then not more often than it may."""

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


def test_members_that_come_together_are_given_their_part_together() -> None:
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


def test_meanwhile_a_member_has_what_it_had_and_is_at_the_epoch_of_the_last_assignment() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    (second,) = joined(driver, 1, first=1)
    assert (second.epoch, second.places) == (first.epoch, set())
    first.beat()
    answer = first.beat()
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, first.epoch, None)
    assert len(first.places) == 6


def test_the_first_change_after_a_quiet_while_counts_at_once() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    driver.pass_time(INTERVAL_MS)
    joined(driver, 1, first=1)
    assert written(driver, TARGET_EPOCH) == 2
    assert len(first.beat().assignment or ()) == 1
    assert len(first.places) == 3


def test_what_has_changed_back_meanwhile_moves_nothing() -> None:
    driver = driver_of()
    (first,) = joined(driver, 1)
    (second,) = joined(driver, 1, first=1)
    second.leave()
    driver.pass_time(INTERVAL_MS)
    assert first.beat().assignment is None
    assert len(first.places) == 6


def test_only_members_whose_part_changes_are_written() -> None:
    driver = driver_of(partitions=100)
    joined(driver, 10)
    driver.pass_time(INTERVAL_MS)
    before = written(driver, TARGET)
    assert before == 1 + 10
    driver.pass_time(INTERVAL_MS)
    Consumer(driver, "reads nothing yet", topics=("later",)).join()
    assert written(driver, TARGET) == before + 1


@pytest.mark.parametrize("interval_ms", [0, 1])
def test_a_large_group_pauses_longer_unless_it_may_not_pause_at_all(interval_ms: int) -> None:
    driver = driver_of(partitions=1_000, interval_ms=interval_ms)
    joined(driver, 10)
    driver.pass_time(1)
    assert written(driver, TARGET_EPOCH) == (10 if interval_ms == 0 else 1)
    driver.pass_time(1_000)
    assert describe(driver).assignment_epoch == describe(driver).group_epoch


def test_a_group_that_everybody_left_shares_out_nothing() -> None:
    driver = driver_of()
    members = joined(driver, 2)
    for member in members:
        member.leave()
    driver.pass_time(10 * INTERVAL_MS)
    assert written(driver, TARGET_EPOCH) == 1
    assert describe(driver).state == "Empty"


def test_after_a_restart_what_is_open_is_shared_out_with_the_next_heartbeat() -> None:
    driver = driver_of()
    first, second = joined(driver, 2)
    restarted = driver.restarted()
    assert describe(restarted).state == "Assigning"
    first.move_to(restarted)
    second.move_to(restarted)
    answer: ConsumerHeartbeatResponse = first.beat()
    assert answer.error is ErrorCode.NONE
    assert len(first.places) == 3


def test_a_classic_member_is_sent_to_join_when_it_has_something_to_come_for() -> None:
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


def test_a_member_that_left_is_noticed_by_a_classic_one_too() -> None:
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
