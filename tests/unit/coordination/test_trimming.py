"""Tests that a shard trims the log below a snapshot of its machine, once the snapshot is durable."""

import pytest

from builders.coordination.site import KEY, ToySite, run_toys
from builders.coordination.toy_machine import Snapshot
from builders.partitions import read_all
from millstream.model.errors import ErrorCode
from millstream.storage.store import FlushPolicy

OK = ErrorCode.NONE


async def put_some(site: ToySite) -> dict[str, str]:
    """Put some keys into one partition, and return its values."""
    names = [name for name in map(str, range(40)) if site.number(name) == site.number()]
    for name in names:
        assert await site.put(f"first {name}", name) is OK
    assert await site.put("changed") is OK
    return dict(site.machine().values)


@pytest.mark.parametrize("policy", FlushPolicy)
def test_a_snapshot_trims_the_log_and_restores_the_same_state(policy: FlushPolicy) -> None:
    async def story(site: ToySite) -> None:
        values = await put_some(site)
        snapshot_offset = site.partition().log.end_offset
        await site.ask(Snapshot(), KEY).answer()
        await site.shards[site.number()].settled()
        assert site.partition().log.start_offset == snapshot_offset
        assert await site.put("again") is OK
        await site.restart()
        assert site.partition().log.start_offset == snapshot_offset
        assert len(await read_all(site.partition())) == len(values) + 1
        assert site.machine().values == values | {KEY: "again"}

    run_toys(story, policy=policy)


def test_a_snapshot_of_several_steps_trims_below_its_first_step() -> None:
    async def story(site: ToySite) -> None:
        values, log = await put_some(site), site.partition().log
        snapshot_offset = log.end_offset
        for _ in range(2):
            await site.ask(Snapshot(steps=3), KEY).answer()
            assert await site.put("between") is OK
            await site.shards[site.number()].settled()
            assert log.start_offset == 0, "the snapshot is not complete"
        await site.ask(Snapshot(steps=3), KEY).answer()
        await site.shards[site.number()].settled()
        assert log.start_offset == snapshot_offset
        await site.restart(crashed=True)
        assert site.machine().values == values | {KEY: "between"}

    run_toys(story)


def test_a_snapshot_is_trimmed_only_after_it_is_durable() -> None:
    async def story(site: ToySite) -> None:
        values, log = await put_some(site), site.partition().log
        asked = site.ask(Snapshot(), KEY)
        assert not asked.answers
        assert log.start_offset == 0
        await site.crash()
        await site.start()
        await site.loaded()
        assert site.machine().values == values

    run_toys(story)


def test_a_failed_flush_of_a_snapshot_keeps_the_log() -> None:
    async def story(site: ToySite) -> None:
        values = await put_some(site)
        site.disk.flush_error_chance = 1.0
        assert (await site.ask(Snapshot(), KEY).answer()).error is not OK
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        assert site.partition().log.start_offset == 0
        assert site.machine().values == values

    run_toys(story)


def test_a_trim_that_the_disk_refuses_is_logged_and_done_by_the_next_snapshot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(site: ToySite) -> None:
        values, log = await put_some(site), site.partition().log
        await site.ask(Snapshot(), KEY).answer()
        site.disk.is_full = True
        await site.shards[site.number()].settled()
        site.disk.is_full = False
        assert log.start_offset == 0
        assert any(record.getMessage() == "coordinator log not trimmed" for record in caplog.records)
        snapshot_offset = log.end_offset
        await site.ask(Snapshot(), KEY).answer()
        await site.shards[site.number()].settled()
        assert log.start_offset == snapshot_offset
        assert site.machine().values == values

    run_toys(story)
