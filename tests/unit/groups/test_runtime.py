"""Tests groups in the broker's runtime: logged, answered when durable, and loaded again after a restart or a
failure."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from builders.groups.site import EVENTS, GROUP, GroupSite, commit, join, run_groups, settled_member
from builders.loops import for_each
from builders.partitions import ELSEWHERE, NODE_ID
from millstream.coordination.loading import READ_BYTES
from millstream.groups.commands import AssignedBytes, DescribeGroup, FetchOffsets, Heartbeat, ListGroups, SyncGroup
from millstream.groups.machine import FORGOTTEN_AT_ONCE
from millstream.groups.responses import (
    EmptyResponse,
    GroupDescription,
    GroupList,
    JoinResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.groups.runtime.coordinator import TOPIC, TOPIC_SETTINGS, GroupCoordinator
from millstream.model.errors import ErrorCode
from millstream.model.ids import BrokerId
from millstream.records.header import each_batch
from millstream.storage.store import FlushPolicy

OK = ErrorCode.NONE


def test_the_first_groups_create_the_internal_topic_once() -> None:
    async def story(site: GroupSite) -> None:
        assert site.partitions.image.topic(TOPIC) is None
        many = [asyncio.ensure_future(site.commit(number, group_id=f"group-{number}")) for number in range(20)]
        await asyncio.gather(site.groups.ensure(), site.groups.ensure())
        assert await asyncio.gather(*many) == [OK] * 20
        topic = site.partitions.image.topic(TOPIC)
        assert topic is not None
        assert topic.partitions == 4
        assert topic.settings == TOPIC_SETTINGS
        assert [await site.committed(f"group-{number}") for number in range(20)] == [{0: n} for n in range(20)]

    run_groups(story)


def test_listing_groups_does_not_create_the_internal_topic() -> None:
    async def story(site: GroupSite) -> None:
        assert await site.groups.list_groups(ListGroups()) == GroupList()
        assert site.partitions.image.topic(TOPIC) is None

    run_groups(story)


@pytest.mark.parametrize("crashed", [False, True])
def test_commits_and_members_survive_a_restart(crashed: bool) -> None:
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
def test_acknowledged_commits_survive_a_power_loss(seed: int) -> None:
    async def story(site: GroupSite) -> None:
        acknowledged: dict[str, int] = {}

        async def commit_on(groups: GroupCoordinator, group_id: str) -> None:
            for offset in range(acknowledged.get(group_id, 0) + 1, 1_000):
                answer = await groups.request(group_id, commit(offset, group_id=group_id))
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


def test_a_heartbeat_is_answered_without_waiting_for_a_flush() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        writing = site.put(commit(2, member_id=member.member_id, generation=member.generation))
        beating = site.put(Heartbeat(GROUP, member.generation, member.member_id, None))
        assert beating.answers == [EmptyResponse()]
        assert writing.answers == []
        assert (await writing.answer(PartitionErrors)).error is OK

    run_groups(story)


def test_a_failed_flush_fails_pending_commits_and_the_state_is_reloaded() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        member = await settled_member(site, "others")
        site.disk.flush_error_chance = 1.0
        lost = [site.put(commit(offset)) for offset in (2, 3)]
        for each in lost:
            assert (await each.answer(PartitionErrors)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert await site.commit(4) is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        # A commit that failed may be in the log all the same: its error leaves the outcome open.
        assert (await site.committed())[0] in (1, 2, 3)
        assert await site.commit(5) is OK
        assert await site.committed() == {0: 5}
        # Other groups continue, in this partition and in others.
        beat = Heartbeat("others", member.generation, member.member_id, None)
        assert await site.ask(beat, EmptyResponse) == EmptyResponse()
        await site.restart(crashed=True)
        assert await site.committed() == {0: 5}

    run_groups(story)


def test_pending_commands_are_answered_when_the_broker_stops() -> None:
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


def test_a_join_is_answered_once_when_its_connection_closes() -> None:
    async def story(site: GroupSite) -> None:
        await settled_member(site)
        waiting = site.put(join())
        await asyncio.sleep(0.1)
        waiting.cancel()
        assert (await waiting.answer(JoinResponse)).error is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(60)
        assert len(waiting.answers) == 1

    run_groups(story)


def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
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


def test_commands_get_load_in_progress_while_the_log_is_replayed() -> None:
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


def test_two_thousand_groups_survive_a_crash() -> None:
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


def test_compaction_keeps_the_latest_state_of_groups() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        named: dict[str, Any] = {"member_id": member.member_id, "generation": member.generation}
        log = site.partition().log
        log.configure(replace(log.settings, segment_bytes=20_000))
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


def test_offsets_are_removed_when_their_topic_is_deleted() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(5)
        await site.partitions.delete(EVENTS)
        await asyncio.sleep(1)
        assert await site.committed() == {}
        await site.restart(crashed=True)
        assert await site.committed() == {}

    run_groups(story)


@pytest.mark.parametrize(("loading", "made_again"), [(False, False), (False, True), (True, False), (True, True)])
def test_offsets_of_a_topic_deleted_while_groups_are_not_loaded_are_removed(loading: bool, made_again: bool) -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(5)
        await site.groups.stop()
        if loading:
            await site.restart()
            await site.stop()
            await site.start()
            assert site.groups.figures().loading
        async with site.groups._turn:  # Blocks the loading of groups.
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
def test_a_recreated_topic_has_no_old_offsets_after_a_crash_during_their_removal(
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


def test_records_beyond_the_batch_limit_are_split_into_several_batches() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(0)
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=2_000)
        before = partition.log.end_offset
        assert (await site.ask(commit(3, partitions=range(4), metadata="x" * 700), PartitionErrors)).error is OK
        assert partition.log.end_offset == before + 4
        data, _ = await partition.reader.read_cold(before, max_bytes=10_000)
        offsets = [header.base_offset for _, header in each_batch(data)]
        assert len(offsets) == 2
        assert all(one < other for one, other in pairwise(offsets))
        too_large = commit(4, metadata="x" * 3_000)
        assert (await site.ask(too_large, PartitionErrors)).error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        await site.loaded()
        assert await site.committed() == dict.fromkeys(range(4), 3)

    run_groups(story)


def test_a_follower_gets_its_assignment_after_it_is_durable() -> None:
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


def test_a_group_partition_is_loaded_when_it_is_led_here_again() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(5)
        await site.groups.project()
        number = site.partition().number
        await site.move_leader(TOPIC, number, ELSEWHERE.node_id)
        assert await site.commit(6) is ErrorCode.NOT_COORDINATOR
        fetched = await site.ask(FetchOffsets(GROUP, None), OffsetsResponse)
        assert fetched.error is ErrorCode.NOT_COORDINATOR
        assert site.groups.figures().groups == 0
        await asyncio.sleep(2)
        await site.move_leader(TOPIC, number, BrokerId(NODE_ID))
        await site.loaded()
        assert await site.committed() == {0: 5}
        assert await site.commit(7) is OK
        await asyncio.sleep(2)
        assert [row.offset for row in site.catalog.group_tables.offsets.values()] == [7]

    run_groups(story)


def test_a_commit_in_flight_during_a_change_of_leader_is_answered_and_counted_once() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(7)
        number = site.partition().number
        writing = site.put(commit(8, group_id=GROUP))
        await site.move_leader(TOPIC, number, ELSEWHERE.node_id)
        assert (await writing.answer(PartitionErrors)).error is ErrorCode.NOT_COORDINATOR
        await site.move_leader(TOPIC, number, BrokerId(NODE_ID))
        await site.loaded()
        assert site.groups.figures().groups == 1
        assert await site.committed() == {0: 8}

    run_groups(story)
