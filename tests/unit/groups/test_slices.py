"""What takes long is done little by little, so that others get their turn in between."""

import asyncio
from typing import Any

import pytest

from builders.groups.machine import Driver
from builders.groups.site import GroupSite, run_groups
from builders.groups.topics import Topics
from millstream.groups.effects import Effects, GroupLogRecord
from millstream.groups.machine import FORGOTTEN_AT_ONCE, LOADED_AT_ONCE, GroupMachine
from millstream.groups.runtime.loading import SLICE
from millstream.model.errors import ErrorCode


def with_offsets(groups: int, **settings: Any) -> Driver:
    driver = Driver(**settings)
    for number in range(groups):
        driver.commit(("orders", 0, number), ("bills", 0, 1), group_id=f"g{number}")
    return driver


def test_all_partitions_together_replay_one_slice_in_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[int] = []
    is_counting = False
    really_replay = GroupMachine.replay

    def next_turn() -> None:
        nonlocal is_counting
        is_counting = False

    def replay(machine: GroupMachine, record: GroupLogRecord) -> None:
        nonlocal is_counting
        if not is_counting:
            is_counting = True
            replayed.append(0)
            asyncio.get_running_loop().call_soon(next_turn)
        replayed[-1] += 1
        really_replay(machine, record)

    monkeypatch.setattr(GroupMachine, "replay", replay)

    async def story(site: GroupSite) -> None:
        commits = [site.commit(number, group_id=f"g{number}") for number in range(6 * SLICE)]
        assert set(await asyncio.gather(*commits)) == {ErrorCode.NONE}
        await site.restart()
        assert sum(replayed) == 6 * SLICE
        assert max(replayed) <= SLICE
        assert await site.committed("g7") == {0: 7}

    run_groups(story)


def test_groups_begin_to_live_again_in_steps() -> None:
    driver = with_offsets(3 * LOADED_AT_ONCE)
    machine = Driver(driver.log).machine
    assert len(list(machine.loading(lambda: driver.now, Effects()))) == 6


def test_after_a_start_groups_are_looked_at_one_after_another() -> None:
    driver = with_offsets(300, offsets_retention_ms=1_000)
    driver.at_ms += 5_000
    started = driver.restarted()
    written = len(started.log)
    started.pass_time(10)
    assert 0 < len(started.log) - written <= 30
    started.pass_time(1_000)
    assert not started.machine.group_ids()


def test_the_offsets_of_a_topic_that_is_gone_are_forgotten_in_steps() -> None:
    driver = with_offsets(3 * FORGOTTEN_AT_ONCE)
    written = len(driver.log)
    driver.delete_topics("orders")
    assert len(driver.log) - written == FORGOTTEN_AT_ONCE
    driver.pass_time(10)
    assert len(driver.log) - written == 3 * FORGOTTEN_AT_ONCE
    assert driver.offsets("g7") == {("bills", 0): 1}
    assert sorted(driver.restarted().machine.dump()) == sorted(driver.machine.dump())


def test_offsets_in_a_topic_that_is_no_longer_there_are_forgotten_when_another_has_its_name() -> None:
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


def test_what_is_still_to_be_forgotten_counts_as_forgotten() -> None:
    driver = with_offsets(3 * FORGOTTEN_AT_ONCE)
    groups = [f"g{number}" for number in range(3 * FORGOTTEN_AT_ONCE)]
    driver.delete_topics("orders")
    assert all(driver.offsets(group_id) == {("bills", 0): 1} for group_id in groups)
    assert all(driver.offsets(group_id, ("orders", 0)) == {} for group_id in groups)


def test_a_commit_for_a_topic_made_anew_stays_and_does_not_bring_back_what_was_before() -> None:
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
