"""Groups as the broker runs them: kept in the log, answered when durable, loaded again after whatever happened."""

import asyncio
import errno
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from builders.groups.site import EVENTS, GROUP, GroupSite, commit, join, run_groups, settled_member
from builders.loops import for_each
from builders.partitions import read_all
from millstream.groups.commands import AssignedBytes, DescribeGroup, FetchOffsets, Heartbeat, ListGroups, SyncGroup
from millstream.groups.effects import GroupLogRecord
from millstream.groups.machine import FORGOTTEN_AT_ONCE, GroupMachine
from millstream.groups.responses import (
    EmptyResponse,
    GroupDescription,
    GroupList,
    JoinResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.groups.runtime import shard
from millstream.groups.runtime.coordinator import TOPIC, TOPIC_SETTINGS, Coordinator, partition_of
from millstream.groups.runtime.loading import READ_BYTES
from millstream.model.errors import ErrorCode
from millstream.records.header import each_batch
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation

OK = ErrorCode.NONE


@pytest.mark.parametrize(
    ("group_id", "hashed"),
    [("", 0), ("a", 97), ("readers", 1_080_410_128), ("polygenelubricants", 0), ("grüppe-🙂", 1_039_948_098)],
)
def test_a_group_is_where_javas_hash_of_its_name_says(group_id: str, hashed: int) -> None:
    assert partition_of(group_id, 2**31) == hashed
    assert partition_of(group_id, 50) == hashed % 50


def test_the_first_group_makes_the_internal_topic_once() -> None:
    async def story(site: GroupSite) -> None:
        assert site.partitions.topic(TOPIC) is None
        many = [asyncio.ensure_future(site.commit(number, group_id=f"group-{number}")) for number in range(20)]
        await asyncio.gather(site.groups.ensure(), site.groups.ensure())
        assert await asyncio.gather(*many) == [OK] * 20
        topic = site.partitions.topic(TOPIC)
        assert topic is not None
        assert topic.partitions == 4
        assert topic.settings == TOPIC_SETTINGS
        assert [await site.committed(f"group-{number}") for number in range(20)] == [{0: n} for n in range(20)]

    run_groups(story)


def test_listing_groups_does_not_make_the_topic() -> None:
    async def story(site: GroupSite) -> None:
        assert await site.groups.list_groups(ListGroups()) == GroupList()
        assert site.partitions.topic(TOPIC) is None

    run_groups(story)


def refuse(_: DiskOperation) -> float:
    raise OSError(errno.ENOSPC, "no room for anything")


def test_where_the_topic_cannot_be_made_groups_are_not_available_and_come_later() -> None:
    async def story(site: GroupSite) -> None:
        site.disk.before = refuse
        assert await site.commit(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert site.partitions.topic(TOPIC) is None
        site.disk.before = None
        assert await site.commit(1) is OK

    run_groups(story)


def test_one_question_is_one_batch_in_the_log() -> None:
    async def story(site: GroupSite) -> None:
        await site.ask(commit(7, partitions=range(4)), PartitionErrors)
        records = await read_all(site.partition())
        assert len(records) == 4
        assert site.partition().log.end_offset == 4
        assert len({record.timestamp for record in records}) == 1

    run_groups(story)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_restart_keeps_commits_and_members(crashed: bool) -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        assert await site.commit(5, member_id=member.member_id, generation=member.generation, metadata="here") is OK
        await site.restart(crashed=crashed)
        assert await site.committed_whole() == (5, 0, "here", (await site.committed_whole()).committed_ms)
        beat = Heartbeat(GROUP, member.generation, member.member_id, None)
        assert await site.ask(beat, EmptyResponse) == EmptyResponse()
        described = await site.ask(DescribeGroup(GROUP), GroupDescription)
        assert described.state == "Stable"
        assert [(each.member_id, each.assignment) for each in described.members] == [(member.member_id, b"everything")]

    run_groups(story)


@for_each("seed", range(10))
def test_a_power_loss_keeps_every_commit_that_was_acknowledged(seed: int) -> None:
    async def story(site: GroupSite) -> None:
        acknowledged: dict[str, int] = {}

        async def commit_on(groups: Coordinator, group_id: str) -> None:
            for offset in range(acknowledged.get(group_id, 0) + 1, 1_000):
                answer = await groups.request(commit(offset, group_id=group_id))
                if answer != PartitionErrors():
                    return
                acknowledged[group_id] = offset

        for _ in range(3):
            tasks = [asyncio.ensure_future(commit_on(site.groups, f"group-{number}")) for number in range(5)]
            await asyncio.sleep(0.5 * site.random.random())
            seen = dict(acknowledged)
            await site.restart(crashed=True)
            await asyncio.gather(*tasks)
            for group_id, offset in seen.items():
                found = (await site.committed(group_id))[0]
                assert found >= offset
                acknowledged[group_id] = found

    run_groups(story, seed=seed)


def test_nobody_is_told_of_an_offset_that_is_not_durable() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        before = site.partition().high_watermark
        writing = site.put(commit(2))
        reading = site.put(FetchOffsets(GROUP, None))
        assert writing.answers == reading.answers == []
        assert (await reading.answer(OffsetsResponse)).offsets[EVENTS, 0].offset == 2
        assert site.partition().high_watermark > before
        assert writing.answers

    run_groups(story)


def test_a_heartbeat_does_not_wait_for_anybodys_flush() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        writing = site.put(commit(2, member_id=member.member_id, generation=member.generation))
        beating = site.put(Heartbeat(GROUP, member.generation, member.member_id, None))
        assert beating.answers == [EmptyResponse()]
        assert writing.answers == []
        assert (await writing.answer(PartitionErrors)).error is OK

    run_groups(story)


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.INTERVAL])
def test_where_no_flush_is_waited_for_answers_leave_at_once(policy: FlushPolicy) -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        assert site.put(commit(2)).answers == [PartitionErrors()]

    run_groups(story, policy=policy)


def test_a_failed_flush_answers_everybody_and_the_state_is_what_the_log_has() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        member = await settled_member(site, "others")
        site.disk.flush_error_chance = 1.0
        lost = [site.put(commit(offset)) for offset in (2, 3)]
        for each in lost:
            assert (await each.answer(PartitionErrors)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await site.commit(4) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        # What was refused may stand all the same: nobody was told that it does not.
        assert (await site.committed())[0] in (1, 2, 3)
        assert await site.commit(5) is OK
        assert await site.committed() == {0: 5}
        # Groups of other partitions, or of this one, that nothing happened to go on.
        beat = Heartbeat("others", member.generation, member.member_id, None)
        assert await site.ask(beat, EmptyResponse) == EmptyResponse()
        await site.restart(crashed=True)
        assert await site.committed() == {0: 5}

    run_groups(story)


def test_a_log_that_takes_no_writes_is_asked_again_until_it_does() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        site.disk.is_full = True
        for _ in range(5):
            assert await site.commit(2) in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )
            await asyncio.sleep(0.1)
        site.disk.is_full = False
        await asyncio.sleep(20)
        assert await site.committed() == {0: 1}
        assert await site.commit(3) is OK

    run_groups(story)


def test_who_waits_for_other_members_is_answered_when_the_broker_stops() -> None:
    async def story(site: GroupSite) -> None:
        first = await settled_member(site)
        waiting = site.put(join())
        await asyncio.sleep(0.1)
        assert waiting.answers == []
        writing = site.put(commit(9, group_id="others"))
        end = site.partition().log.end_offset
        groups, partition = site.groups, site.partition()
        await groups.stop()
        assert (await waiting.answer(JoinResponse)).error is ErrorCode.NOT_COORDINATOR
        assert (await writing.answer(PartitionErrors)).error is OK
        late = site.put(Heartbeat(GROUP, first.generation, first.member_id, None))
        assert (await late.answer(EmptyResponse)).error is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(60)
        assert partition.log.end_offset == end
        await site.restart(crashed=True)
        assert await site.committed("others") == {0: 9}

    run_groups(story)


def test_a_member_whose_connection_is_gone_is_not_waited_for_by_its_connection() -> None:
    async def story(site: GroupSite) -> None:
        await settled_member(site)
        waiting = site.put(join())
        await asyncio.sleep(0.1)
        waiting.hurry()
        assert (await waiting.answer(JoinResponse)).error is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(60)
        assert len(waiting.answers) == 1

    run_groups(story)


def test_a_silent_member_is_gone_after_its_session() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        await asyncio.sleep(9)
        assert (
            await site.ask(Heartbeat(GROUP, member.generation, member.member_id, None), EmptyResponse)
            == EmptyResponse()
        )
        await asyncio.sleep(11)
        described = await site.ask(DescribeGroup(GROUP), GroupDescription)
        assert (described.state, described.members) == ("Empty", ())

    run_groups(story)


def test_while_the_log_is_read_groups_are_being_loaded() -> None:
    async def story(site: GroupSite) -> None:
        note = "x" * 4_000
        for number in range(READ_BYTES // 3_000):
            await site.commit(number, metadata=note, partition=number % 4)
        await site.stop()
        await site.start()
        assert await site.commit(7) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = await site.groups.list_groups(ListGroups())
        assert listed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await site.loaded()
        assert await site.commit(7) is OK
        assert len(await site.committed()) == 4

    run_groups(story)


def test_a_fault_of_the_machine_while_it_is_loaded_is_told_and_loading_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really_replay, faults = GroupMachine.replay, [ZeroDivisionError("nobody thought of it")]

    def replay(machine: GroupMachine, record: GroupLogRecord) -> None:
        if faults:
            raise faults.pop()
        really_replay(machine, record)

    async def story(site: GroupSite) -> None:
        assert await site.commit(5) is OK
        monkeypatch.setattr(GroupMachine, "replay", replay)
        await site.restart()
        assert await site.committed() == {0: 5}

    run_groups(story)
    assert not faults
    assert "nobody thought of it" in caplog.text


@pytest.mark.parametrize("place", ["handle", "encode_batch"])
def test_a_fault_while_a_question_is_dealt_with_is_answered_and_the_state_loaded_anew(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("nobody thought of it")

    async def story(site: GroupSite) -> None:
        assert await site.commit(5) is OK
        with monkeypatch.context() as planted:
            planted.setattr(GroupMachine if place == "handle" else shard, place, fail)
            assert await site.commit(6) is ErrorCode.UNKNOWN_SERVER_ERROR
        await asyncio.sleep(1)
        assert await site.committed() == {0: 5}
        assert await site.commit(7) is OK

    run_groups(story)
    assert "nobody thought of it" in caplog.text


def test_two_thousand_groups_are_there_after_a_restart() -> None:
    async def story(site: GroupSite) -> None:
        names = [f"group-{number}" for number in range(2_000)]
        errors = await asyncio.gather(*(site.commit(at, group_id=name) for at, name in enumerate(names)))
        assert set(errors) == {OK}
        await site.restart(crashed=True)
        listed = await site.groups.list_groups(ListGroups())
        assert sorted(group.group_id for group in listed.groups) == sorted(names)
        assert [await site.committed(name) for name in names] == [{0: at} for at in range(2_000)]
        assert site.groups.figures().groups == 2_000

    run_groups(story, policy=FlushPolicy.ALWAYS)


def test_compaction_keeps_what_groups_have_and_not_how_they_came_to_it() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        named: dict[str, Any] = {"member_id": member.member_id, "generation": member.generation}
        log = site.partition().log
        log.settings = replace(log.settings, segment_bytes=20_000)
        for offset in range(1_000):
            await site.ask(commit(offset, partitions=(0, 1, 2), metadata=f"note {offset}", **named), PartitionErrors)
            await site.ask(Heartbeat(GROUP, member.generation, member.member_id, None), EmptyResponse)
        before = log.size_bytes
        await site.partitions.clean()
        assert log.size_bytes < before / 2
        end = log.end_offset
        for crashed in (False, True):
            await site.restart(crashed=crashed)
            assert site.partition().log.end_offset == end
            assert await site.committed() == dict.fromkeys(range(3), 999)
            assert (await site.committed_whole()).metadata == "note 999"
            assert (
                await site.ask(Heartbeat(GROUP, member.generation, member.member_id, None), EmptyResponse)
                == EmptyResponse()
            )

    run_groups(story)


def test_what_was_committed_for_a_topic_goes_with_it() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(5)
        await site.partitions.delete(EVENTS)
        await asyncio.sleep(1)
        assert await site.committed() == {}
        await site.restart(crashed=True)
        assert await site.committed() == {}

    run_groups(story)


@pytest.mark.parametrize(("loading", "made_again"), [(False, False), (False, True), (True, False), (True, True)])
def test_what_was_committed_for_a_topic_goes_with_it_when_nobody_could_take_note(
    loading: bool, made_again: bool
) -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(5)
        await site.groups.stop()
        if loading:
            await site.restart()
            await site.stop()
            await site.start()
            assert site.groups.figures().loading
        async with site.groups._turn:  # Nothing is loaded meanwhile.
            await site.partitions.delete(EVENTS)
            if made_again:
                await site.partitions.create(EVENTS, 4)
        if not loading:
            await site.restart()
        await site.loaded()
        assert await site.committed() == {}
        if made_again:
            return
        await site.partitions.create(EVENTS, 4)
        assert await site.committed() == {}

    run_groups(story)


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_topic_made_anew_has_nothing_of_the_one_before_when_a_crash_came_before_all_was_forgotten(
    power_loss: bool,
) -> None:
    groups = [f"g{number}" for number in range(100 * FORGOTTEN_AT_ONCE)]

    async def story(site: GroupSite) -> None:
        await asyncio.gather(*(site.commit(5, group_id=group_id) for group_id in groups))
        await site.partitions.delete(EVENTS)
        await site.partitions.create(EVENTS, 4)
        await site.crash(power_loss=power_loss)
        await site.start()
        await site.loaded()
        assert [await site.committed(group_id) for group_id in groups] == [{}] * len(groups)
        assert await site.commit(1, group_id="g7", partition=1) is ErrorCode.NONE
        await site.restart(crashed=True)
        assert await site.committed("g7") == {1: 1}
        assert await site.committed("g8") == {}

    run_groups(story)


def test_more_than_a_batch_can_hold_goes_into_several() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(0)
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=2_000)
        before = partition.log.end_offset
        assert (await site.ask(commit(3, partitions=range(4), metadata="x" * 700), PartitionErrors)).error is OK
        assert partition.log.end_offset == before + 4
        data = await partition.read_cold(before, 10_000)
        offsets = [header.base_offset for _, header in each_batch(data)]
        assert len(offsets) == 2
        assert all(one < other for one, other in pairwise(offsets))
        too_large = commit(4, metadata="x" * 3_000)
        assert (await site.ask(too_large, PartitionErrors)).error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        await site.loaded()
        assert await site.committed() == dict.fromkeys(range(4), 3)

    run_groups(story)


def test_a_follower_is_told_its_part_when_it_is_durable() -> None:
    async def story(site: GroupSite) -> None:
        leader = await settled_member(site)
        joining, again = site.put(join()), site.put(join(leader.member_id))
        follower = (await joining.answer(JoinResponse)).member_id
        generation = (await again.answer(JoinResponse)).generation
        parts = (AssignedBytes(leader.member_id, b"mine"), AssignedBytes(follower, b"yours"))
        asking = site.put(SyncGroup(GROUP, generation, follower, None, None, None, ()))
        telling = site.put(SyncGroup(GROUP, generation, leader.member_id, None, None, None, parts))
        assert telling.answers == asking.answers == []
        assert (await telling.answer(SyncResponse)).assignment == b"mine"
        assert (await asking.answer(SyncResponse)).assignment == b"yours"

    run_groups(story)
