"""Compares the known ids of a partition with a dictionary through saves, restarts, kills and truncated logs."""

import asyncio
import errno
from random import Random
from typing import Any

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.partitions import Site, SlowWorkers, committed, read_all
from builders.putting import put_batch, put_ids, put_numbered, retry, stored_ids
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.served.partitions import Partitions
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation

WINDOW_MS = 80_000
SLACK_MS = WINDOW_MS // 8 + 1
HAPPENINGS = {"ids": 9, "made": 5, "retry": 5, "plain": 2, "time": 4, "save": 3, "restart": 1, "kill": 1}
"""What may happen to a partition, and how often that is."""

TINY = ProducerLimits(ids=IdLimits(window_ms=WINDOW_MS, in_memory_each=4))


def no_room_for_runs(operation: DiskOperation) -> None:
    if operation.kind == "write" and operation.path.endswith(".run"):
        raise OSError(errno.ENOSPC, "no room")


def never() -> bool:
    return False


def events(partitions: Partitions) -> Leadership:
    partition = partitions.get("events", 0)
    assert partition is not None
    return partition


async def begun(site: Site, limits: ProducerLimits = TINY, **settings: str) -> Leadership:
    partitions = await site.start(limits=limits)
    await partitions.create("events", 1, {name.replace("_", "."): value for name, value in settings.items()})
    return events(partitions)


def index_of(partition: Leadership) -> IdIndex:
    assert partition.replica.ids is not None
    return partition.replica.ids


def id_files(site: Site, partition: Leadership) -> list[str]:
    return [name for name in site.disk.list(partition.log.path) if name.startswith("ids")]


class Model:
    """The expected ids: the offset and the time of each."""

    def __init__(self) -> None:
        self.places: dict[Any, tuple[int, int]] = {}

    def check(self, what: Any, offset: int, end_before: int, now_ms: int) -> None:
        if offset < end_before:
            assert self.places[what][0] == offset, f"{what} is at another place"
            assert now_ms - self.places[what][1] <= WINDOW_MS + 2 * SLACK_MS + 10_000, f"{what} is known too long"
        else:
            if what in self.places:
                assert now_ms - self.places[what][1] >= WINDOW_MS, f"{what} was forgotten too early"
            self.places[what] = (offset, now_ms)


async def _step(site: Site, random: Random, partition: Leadership, model: Model) -> Leadership:
    """Apply one event to a partition. Returns the partition, which may be a new one after a restart."""
    end, now_ms = partition.log.end_offset, site.clock.now_ms
    match random.choices(
        ["ids", "made", "retry", "plain", "time", "save", "restart", "kill"], [9, 5, 5, 2, 4, 3, 1, 1]
    )[0]:
        case "ids":
            ids = [b"%d" % number for number in random.sample(range(60), random.randint(1, 5))]
            for each, offset in zip(ids, await put_ids(partition, *ids), strict=True):
                model.check(each, offset, end, now_ms)
        case "made":
            writer = 1000 + len(model.places)
            offset = await put_numbered(partition, writer, 0, b"a", b"b")
            for place in range(2):
                model.check(MadeId(writer, 0, 0, 0, place), offset + place, end, now_ms)
        case "retry":
            made = [what for what in model.places if isinstance(what, MadeId)]
            never_sent = MadeId(5_000 + random.randrange(20), 0, 0, 0, random.randrange(2))
            chosen = random.choice([*made, never_sent])
            model.check(chosen, await retry(partition, chosen, b"again"), end, now_ms)
        case "plain":
            await committed(partition, batch(b"plain"))
        case "time":
            site.clock.turn(random.choice([1, 1000, 5_000]))
            assert site.partitions is not None
            await site.partitions.upkeep()
        case "save":
            await random.choice([partition.replica.save_ids, partition.replica.save_state])()
            await partition.replica.merge_ids(never)
        case "restart" | "kill" as how:
            return events(await site.restart(killed=how == "kill", limits=TINY))
    return partition


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.OS])
@for_each("seed", range(6))
def test_ids_are_known_for_their_window_through_saves_and_restarts(seed: int, policy: FlushPolicy) -> None:
    async def story(site: Site) -> None:
        random, model = Random(seed), Model()
        partition = await begun(site)
        for _ in range(400):
            partition = await _step(site, random, partition, model)
        now_ms = site.clock.now_ms
        for what, (offset, at_ms) in model.places.items():
            if now_ms - at_ms < WINDOW_MS:
                found = await (retry(partition, what, b"") if isinstance(what, MadeId) else put_ids(partition, what))
                assert found in (offset, [offset])

    Site(policy=policy).run(story)


def test_a_partition_without_message_ids_has_no_id_index() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        await committed(partition, batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0))
        await put_batch(partition, batch(b"without a producer"))
        partition = events(await site.restart(limits=TINY))
        assert partition.replica.ids is None
        assert id_files(site, partition) == []

    Site().run(story)


def test_a_start_after_a_clean_stop_replays_no_log_for_message_ids() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        for number in range(30):
            await put_ids(partition, b"%d" % number)
            await put_numbered(partition, 7, number, b"v")
        end = partition.log.end_offset
        partition = events(await site.restart(limits=TINY))
        assert partition.replica.unsaved_batches == 0, "nothing was replayed"
        index = index_of(partition)
        assert (index.covered, len(index)) == (end, 60)
        assert all(run.filter is None for run in index.runs), "no filter is read before somebody asks"
        assert await put_ids(partition, b"3", b"new") == [6, end]

    Site().run(story)


def test_runs_are_merged_and_unneeded_files_removed() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        for number in range(300):
            await put_ids(partition, b"%d" % number)
            if number % 3 == 0:
                await partition.replica.save_ids()
        await partition.replica.merge_ids(never)
        runs = index_of(partition).runs
        assert len(runs) <= 12
        assert len(id_files(site, partition)) == len(runs) + 1
        assert await put_ids(partition, *(b"%d" % number for number in range(300))) == list(range(300))

    Site().run(story)


def test_a_known_id_returns_its_offset_after_its_message_is_deleted() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        await put_ids(partition, b"a", b"b")
        assert await partition.delete_records(2) == 2
        for killed in (True, False):
            assert await put_ids(partition, b"b") == [1]
            partition = events(await site.restart(killed=killed, limits=TINY))
        assert await read_all(partition) == []

    Site().run(story)


def test_failed_saves_and_merges_leave_no_files() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        for number in range(3):
            await put_ids(partition, b"%d" % number)
            await partition.replica.save_ids()
        await put_ids(partition, b"3")
        before = id_files(site, partition)
        assert len(before) == 4
        site.disk.before = no_room_for_runs
        for _ in range(5):
            await partition.replica.save_ids()
            assert id_files(site, partition) == before
        site.disk.before = None
        await partition.replica.save_ids()
        after = id_files(site, partition)
        site.disk.before = no_room_for_runs
        for _ in range(5):
            with pytest.raises(OSError, match="no room"):
                await partition.replica.merge_ids(never)
            assert id_files(site, partition) == after
        site.disk.before = None
        await partition.replica.merge_ids(never)
        assert len(id_files(site, partition)) == 2
        assert await put_ids(partition, *(b"%d" % number for number in range(4))) == [0, 1, 2, 3]

    Site().run(story)


def test_message_ids_stay_known_when_a_record_deletion_is_cancelled() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        await put_ids(partition, b"a", b"b")
        workers = partition.replica.workers = SlowWorkers()
        deleting = asyncio.create_task(partition.delete_records(2))
        for _ in range(3):
            await asyncio.sleep(0)
        assert workers.busy
        deleting.cancel()
        await put_ids(partition, b"c")
        await partition.replica.save_state()
        assert await put_ids(partition, b"a", b"b", b"c") == [0, 1, 2]
        partition = events(await site.restart(limits=TINY))
        assert await put_ids(partition, b"a", b"b", b"c") == [0, 1, 2]

    Site().run(story)


def test_retention_waits_until_the_ids_of_removed_messages_are_saved() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site, retention_ms="1000", segment_ms="1000")
        await put_ids(partition, b"a")
        site.clock.turn(20_000)
        assert site.partitions is not None
        for _ in range(3):
            await site.partitions.upkeep()
        assert partition.log.start_offset == 1
        partition = events(await site.restart(killed=True, limits=TINY))
        assert await put_ids(partition, b"a") == [0]

    Site().run(story)


def test_ids_of_messages_that_compaction_removed_are_known_after_a_kill() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0")
        for number in range(20):
            records = batch(b"v" * 100, keys=[b"k"], producer_id=7, producer_epoch=0, base_sequence=number)
            await put_batch(partition, records)
        partition.log.roll()
        assert site.partitions is not None
        await site.partitions.clean()
        await site.partitions.upkeep()
        await site.partitions.clean()
        assert len(await read_all(partition)) == 1
        partition = events(await site.restart(killed=True, limits=TINY))
        found = [await retry(partition, MadeId(7, 0, 0, number, 0), b"v", b"k") for number in range(20)]
        assert found == list(range(20))

    Site().run(story)


def test_a_missing_list_of_runs_rebuilds_the_index_from_the_log() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        for number in range(20):
            await put_ids(partition, b"%d" % number)
            await put_numbered(partition, 7, number, b"v")
        path = partition.log.path
        await site.stop()
        site.disk.remove(f"{path}/ids.snapshot")
        partition = events(await site.start(limits=TINY))
        assert await put_ids(partition, *(b"%d" % number for number in range(20))) == list(range(0, 40, 2))
        assert await retry(partition, MadeId(7, 0, 0, 19, 0), b"v") == 39

    Site().run(story)


def test_the_oldest_ids_are_forgotten_across_partitions_when_the_limit_is_reached() -> None:
    limits = ProducerLimits(ids=IdLimits(most=40, in_memory_each=4))

    async def story(site: Site) -> None:
        partitions = await site.start(limits=limits)
        await partitions.create("events", 2)
        old, busy = partitions.of("events")
        await put_ids(old, b"old")
        await old.replica.save_ids()
        for number in range(60):
            site.clock.turn(1)
            await put_ids(busy, b"%d" % number)
            await busy.replica.save_ids()
        assert len(index_of(old)) == 0
        assert len(index_of(busy)) <= 40
        assert (await put_ids(busy, b"59"), await put_ids(busy, b"0"), await put_ids(old, b"old")) == ([59], [60], [1])
        await site.restart(killed=True, limits=limits)

    Site().run(story)


def test_ids_stay_in_memory_within_limits_while_saves_fail() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        ids = [b"%d" % number for number in range(40)]

        def refuse(operation: Any) -> None:
            if "ids" in operation.path:
                raise OSError(5, "input/output error")

        site.disk.before = refuse
        for each in ids:
            await put_ids(partition, each)
            await partition.replica.save_ids()
        site.disk.before = None
        assert index_of(partition).runs == ()
        assert len(index_of(partition)) <= 16
        assert await put_ids(partition, ids[-1]) == [39]
        await partition.replica.save_ids()
        partition = events(await site.restart(killed=True, limits=TINY))
        assert await put_ids(partition, *ids[30:]) == list(range(30, 40))

    Site().run(story)


def test_a_missing_or_damaged_run_refuses_ids_that_it_may_have() -> None:
    async def story(site: Site) -> None:
        partition = await begun(site)
        await put_ids(partition, b"a")
        await partition.replica.save_ids()
        (run,) = index_of(partition).runs
        run.forget()
        site.disk.remove(run.path)
        with pytest.raises(MillstreamError) as refused:
            await put_ids(partition, b"a")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await stored_ids(partition))[b"a"] == 1

    Site().run(story)
