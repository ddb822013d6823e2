"""Tests that long operations run in slices, so that other work runs in between."""

from typing import Any

from builders.groups.machine import Driver
from builders.groups.topics import Topics
from millstream.coordination.effects import Effects
from millstream.groups.machine import FORGOTTEN_AT_ONCE, LOADED_AT_ONCE


def with_offsets(groups: int, **settings: Any) -> Driver:
    driver = Driver(**settings)
    for number in range(groups):
        driver.commit(("orders", 0, number), ("bills", 0, 1), group_id=f"g{number}")
    return driver


def test_groups_are_resumed_in_slices_after_a_replay() -> None:
    driver = with_offsets(3 * LOADED_AT_ONCE)
    machine = Driver(driver.log).machine
    assert len(list(machine.loading(lambda: driver.now, Effects()))) == 6


def test_expiry_checks_are_spread_over_time_after_a_start() -> None:
    driver = with_offsets(300, offsets_retention_ms=1_000)
    driver.at_ms += 5_000
    started = driver.restarted()
    written = len(started.log)
    started.pass_time(10)
    assert 0 < len(started.log) - written <= 30
    started.pass_time(1_000)
    assert not started.machine.group_ids()


def test_the_offsets_of_a_deleted_topic_are_removed_in_steps() -> None:
    driver = with_offsets(3 * FORGOTTEN_AT_ONCE)
    written = len(driver.log)
    driver.delete_topics("orders")
    assert len(driver.log) - written == FORGOTTEN_AT_ONCE
    driver.pass_time(10)
    assert len(driver.log) - written == 3 * FORGOTTEN_AT_ONCE
    assert driver.offsets("g7") == {("bills", 0): 1}
    assert sorted(driver.restarted().machine.dump()) == sorted(driver.machine.dump())


def test_offsets_of_a_deleted_topic_are_removed_when_its_name_is_reused() -> None:
    topics = Topics(orders=2, bills=1)
    driver = Driver(topics=topics)
    driver.commit(("orders", 0, 5), ("orders", 1, 5), ("bills", 0, 1))
    topics.delete("orders")
    topics.make("orders", 2)
    driver.commit(("orders", 1, 2))
    started = driver.restarted()
    assert started.offsets() == {("orders", 1): 2, ("bills", 0): 1}
    assert len(started.log) == len(driver.log) + 1
    topics.delete("orders")
    assert Driver(started.log, topics=topics).offsets() == {("bills", 0): 1}


def test_offsets_of_a_deleted_topic_are_hidden_before_they_are_removed() -> None:
    driver = with_offsets(3 * FORGOTTEN_AT_ONCE)
    groups = [f"g{number}" for number in range(3 * FORGOTTEN_AT_ONCE)]
    driver.delete_topics("orders")
    assert all(driver.offsets(group_id) == {("bills", 0): 1} for group_id in groups)
    assert all(driver.offsets(group_id, ("orders", 0)) == {} for group_id in groups)


def test_a_commit_for_a_recreated_topic_does_not_restore_old_offsets() -> None:
    driver = Driver()
    groups = [f"g{number}" for number in range(3 * FORGOTTEN_AT_ONCE)]
    for group_id in groups:
        driver.commit(("orders", 0, 5), ("orders", 1, 5), group_id=group_id)
    driver.delete_topics("orders")
    for group_id in groups:
        driver.commit(("orders", 1, 1), group_id=group_id)
    driver.pass_time(100)
    assert all(driver.offsets(group_id) == {("orders", 1): 1} for group_id in groups)
    assert sorted(driver.restarted().machine.dump()) == sorted(driver.machine.dump())
