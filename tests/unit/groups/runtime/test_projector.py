"""Tests that the catalog's tables follow the group log, and are completed after crashes and errors."""

import asyncio

import pytest

from builders.groups.site import EVENTS, GROUP, GroupSite, commit, run_groups, settled_member
from millstream.catalog.projection import GroupRow, OffsetPlace, ShardRows
from millstream.groups.commands import DeleteGroup, DeleteOffsets, LeaveGroup, LeavingMember
from millstream.groups.responses import EmptyResponse, LeaveResponse, PartitionErrors
from millstream.groups.runtime.projector import AT_ONCE_MAX, Projector
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.storage.store import FlushPolicy


def offsets(site: GroupSite, group_id: str = GROUP) -> dict[int, int]:
    tables = site.catalog.group_tables
    return {place.partition: row.offset for place, row in tables.offsets.items() if place.group_id == group_id}


def group(site: GroupSite, group_id: str = GROUP) -> GroupRow | None:
    return site.catalog.group_tables.groups.get(group_id)


def test_a_commit_appears_in_the_tables_within_seconds() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(7, metadata="note")
        assert offsets(site) == {}
        await asyncio.sleep(2)
        assert offsets(site) == {0: 7}
        row = site.catalog.group_tables.offsets[OffsetPlace(GROUP, EVENTS, 0)]
        assert row == (7, 0, "note", (await site.committed_whole()).committed_ms)
        assert group(site) == GroupRow("classic", "Empty", "", "", 0, ())

    run_groups(story)


def test_the_write_period_of_the_group_tables_grows_with_the_number_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.groups.runtime.projector.PERIOD_S_PER_CHANGE", 2.5)

    async def story(site: GroupSite) -> None:
        await site.commit(7)
        await asyncio.sleep(1.5)
        assert offsets(site) == {0: 7}
        await site.commit(8)
        await asyncio.sleep(2)
        assert offsets(site) == {0: 7}
        await asyncio.sleep(5)
        assert offsets(site) == {0: 8}
        await site.commit(9)
        await asyncio.sleep(3)
        assert offsets(site) == {0: 9}

    run_groups(story)


def test_members_are_added_to_and_removed_from_the_tables() -> None:
    async def story(site: GroupSite) -> None:
        member = await settled_member(site)
        await site.groups.project()
        row = group(site)
        assert row is not None
        assert row[:5] == ("classic", "Stable", "consumer", "range", 1)
        (told,) = row.members
        assert told[:4] == (member.member_id, None, "client", "/host")
        await site.ask(LeaveGroup(GROUP, (LeavingMember(member.member_id, None),)), LeaveResponse)
        await site.groups.project()
        row = group(site)
        assert row is not None
        assert (row.state, row.members) == ("Empty", ())
        assert await site.ask(DeleteGroup(GROUP), EmptyResponse) == EmptyResponse()
        await site.groups.project()
        assert group(site) is None

    run_groups(story)


def test_deleted_offsets_are_removed_from_the_tables() -> None:
    async def story(site: GroupSite) -> None:
        await site.ask(commit(1, partitions=(0, 1)), PartitionErrors)
        await site.groups.project()
        await site.ask(DeleteOffsets(GROUP, ((EVENTS, 1),)), PartitionErrors)
        await site.groups.project()
        assert offsets(site) == {0: 1}
        await site.partitions.delete(EVENTS)
        await asyncio.sleep(2)
        assert offsets(site) == {}

    run_groups(story)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_start_writes_the_changes_that_the_group_tables_lack_after_a_stop(crashed: bool) -> None:
    async def story(site: GroupSite) -> None:
        for offset in range(50):
            await site.commit(offset, group_id=f"group-{offset % 7}")
        await site.groups.project()
        await site.commit(100)
        await site.commit(200, group_id="group-3")
        await site.restart(crashed=crashed)
        assert offsets(site) == {}
        await asyncio.sleep(2)
        assert offsets(site) == {0: 100}
        assert offsets(site, "group-3") == {0: 200}
        assert offsets(site, "group-1") == {0: 43}
        before = dict(site.catalog.group_tables.offsets)
        await site.catalog.group_tables.clear()
        await site.restart()
        await asyncio.sleep(2)
        assert site.catalog.group_tables.offsets == before

    run_groups(story)


def test_a_start_writes_only_the_missing_changes() -> None:
    async def story(site: GroupSite) -> None:
        for number in range(20):
            await site.commit(number, group_id=f"group-{number}")
        await site.groups.project()
        await site.restart()
        tables = site.catalog.group_tables
        tables.offsets.clear()
        await site.commit(7)
        await site.groups.project()
        assert list(tables.offsets) == [OffsetPlace(GROUP, EVENTS, 0)]

    run_groups(story)


def test_tables_that_are_ahead_of_the_log_are_rebuilt() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(7)
        await site.groups.project()
        partition = site.partition()
        ahead = ShardRows(
            partition.key, Offset(partition.log.end_offset + 5), {}, {OffsetPlace("gone", EVENTS, 0): None}
        )
        await site.catalog.group_tables.project([ahead])
        site.catalog.group_tables.groups["gone"] = GroupRow("classic", "Empty", "", "", 0, ())
        await site.restart()
        await site.groups.project()
        assert group(site, "gone") is None
        assert offsets(site) == {0: 7}

    run_groups(story)


def test_many_changes_are_written_in_several_transactions() -> None:
    async def story(site: GroupSite) -> None:
        names = [f"group-{number}" for number in range(AT_ONCE_MAX // 2 + 100)]
        await asyncio.gather(*(site.commit(1, group_id=name) for name in names))
        await site.groups.project()
        assert sorted(site.catalog.group_tables.groups) == sorted(names)
        assert len(site.catalog.group_tables.offsets) == len(names)

    run_groups(story, policy=FlushPolicy.OS)


def test_changes_are_written_after_the_catalog_has_recovered() -> None:
    async def story(site: GroupSite) -> None:
        tables = site.catalog.group_tables
        project = tables.project

        async def refuse(rows: object) -> None:
            raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the catalog is away")

        tables.project = refuse  # type: ignore[method-assign]
        await site.commit(7)
        await asyncio.sleep(5)
        assert await site.commit(8) is ErrorCode.NONE
        tables.project = project  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert offsets(site) == {0: 8}

    run_groups(story)


def test_tables_keep_groups_of_a_partition_that_another_broker_leads() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(7)
        await site.groups.project()
        tables, key = site.catalog.group_tables, site.partition().key
        await site.groups.stop()
        projector = Projector(tables, lambda: ())
        await projector.open({key: None})
        assert (offsets(site), projector.projected_offset(key)) == ({0: 7}, (await tables.projected())[key])
        await projector.open({key: Offset(0)})
        assert offsets(site) == {}, "the log of a partition that is led here does not reach as far"

    run_groups(story)


def test_tables_are_cleared_when_the_internal_topic_was_recreated() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(7)
        await site.groups.project()
        await site.groups.stop()
        projector = Projector(site.catalog.group_tables, lambda: ())
        await projector.open({})
        assert offsets(site) == {}

    run_groups(story)
