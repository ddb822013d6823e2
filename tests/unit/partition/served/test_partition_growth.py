"""Tests the growth of served topics, through crashes and failures at every step."""

import asyncio
import copy
from random import Random

import pytest

from builders.batches import batch
from builders.partitions import Site, check_in_step, committed, definition, read_all
from builders.watched_catalog import WatchedCatalog, watched_site
from millstream.catalog.catalog import Catalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk


def _get(partitions: Partitions, number: int = 0) -> Leadership:
    partition = partitions.get("orders", number)
    assert partition is not None
    return partition


def test_new_partitions_are_served_at_once_and_after_a_restart() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        made = await partitions.create("orders", 2, {"retention.ms": "5000"})
        await committed(_get(partitions, 1), batch(b"old"))
        before, old = partitions.image.version, list(partitions.of("orders"))
        grown = await partitions.grow("orders", 5)
        assert (grown.partitions, grown.topic_id) == (5, made.topic_id)
        assert partitions.image.version > before
        assert list(partitions.of("orders"))[:2] == old
        assert partitions.count == 5
        assert partitions.get_by_id(made.topic_id, 4) is _get(partitions, 4)
        assert _get(partitions, 4).settings.retention_ms == 5000
        await committed(_get(partitions, 4), batch(b"new"))
        for killed in (True, False):
            partitions = await site.restart(killed=killed)
            assert definition(partitions, "orders") == (made.topic_id, 5, made.settings)
            assert [record.value for record in await read_all(_get(partitions, 1))] == [b"old"]
            assert [record.value for record in await read_all(_get(partitions, 4))] == [b"new"]
            await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize(
    ("name", "count", "code"),
    [
        ("orders", 3, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2, ErrorCode.INVALID_PARTITIONS),
        ("orders", 0, ErrorCode.INVALID_PARTITIONS),
        ("orders", -1, ErrorCode.INVALID_PARTITIONS),
        ("orders", 10_001, ErrorCode.INVALID_PARTITIONS),
        ("orders", 9, ErrorCode.POLICY_VIOLATION),
        ("unknown", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__hidden", 2, ErrorCode.POLICY_VIOLATION),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_invalid_growth_is_refused_and_changes_nothing(
    name: str, count: int, code: ErrorCode, validate_only: bool
) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(partitions_max=8)
        await partitions.create("orders", 3)
        await partitions.create("__hidden", internal=True)
        with pytest.raises(MillstreamError) as error:
            await partitions.grow(name, count, validate_only=validate_only)
        assert error.value.code is code
        assert partitions.count == 4
        await check_in_step(site, partitions)

    Site().run(story)


def test_growth_with_validate_only_creates_nothing() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 3)
        assert (await partitions.grow("orders", 5, validate_only=True)).partitions == 5
        assert partitions.count == 3
        await check_in_step(site, partitions)

    Site().run(story)


def test_concurrent_growths_of_a_topic_run_one_after_another() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        counts = (3, 2, 5, 5)
        results = await asyncio.gather(*(partitions.grow("orders", n) for n in counts), return_exceptions=True)
        assert [getattr(result, "partitions", None) for result in results] == [3, None, 5, None]
        await check_in_step(site, partitions)

    Site().run(story)


class Witness:
    """Records disk and catalog before every change of either, and after each change of the catalog."""

    def __init__(self, site: Site, catalog: WatchedCatalog) -> None:
        self.moments: list[tuple[SimulatedDisk, Catalog]] = []
        self._site = site
        self._catalog = catalog
        self.look()
        site.disk.before = self._before
        catalog.watch = self.look

    def _before(self, operation: DiskOperation) -> None:
        self.look()

    def look(self) -> None:
        disk, catalog = self._site.disk, self._catalog
        disk.before = catalog.watch = None
        self.moments.append(copy.deepcopy((disk, catalog)))
        disk.before, catalog.watch = self._before, self.look

    def end(self) -> list[tuple[SimulatedDisk, Catalog]]:
        self.look()
        self._site.disk.before = self._catalog.watch = None
        return self.moments


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_start_finishes_a_growth_that_a_crash_interrupted(power_loss: bool) -> None:
    site, catalog = watched_site()

    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        await committed(_get(partitions), batch(b"kept"))
        witness = Witness(site, catalog)
        await partitions.grow("orders", 4)
        moments = witness.end()
        await site.stop()
        seen = [await _after_crash(site, moment, seed if power_loss else None) for seed, moment in enumerate(moments)]
        assert len(seen) > 6
        assert seen == sorted(seen), "once begun, it is finished"
        assert {*seen} == {2, 4}

    site.run(story)


async def _after_crash(site: Site, moment: tuple[SimulatedDisk, Catalog], power_loss: int | None) -> int:
    """Start from the state after a crash, check it, and return the topic's partition count."""
    site.disk, site.catalog = moment
    site.disk.locks.clear()
    if power_loss is not None:
        site.disk.power_loss(Random(power_loss))
    partitions = await site.start()
    await check_in_step(site, partitions)
    topic = partitions.image.topic("orders")
    assert topic is not None
    assert len(partitions.of("orders")) == topic.partitions
    assert [record.value for record in await read_all(_get(partitions))] == [b"kept"]
    for number in range(topic.partitions):
        await committed(_get(partitions, number), batch(b"more"))
    assert (await partitions.grow("orders", 6)).partitions == 6
    await check_in_step(site, partitions)
    await site.stop()
    return topic.partitions


class FullDisk:
    """A disk that refuses to create or rename directories from the n-th time on."""

    def __init__(self, site: Site, first: int) -> None:
        self._left = first
        site.disk.before = self

    def __call__(self, operation: DiskOperation) -> None:
        if operation.kind == "make directory" or operation.path.endswith(".deleted"):
            self._left -= 1
            if self._left <= 0:
                raise OSError(28, "No space left on device", operation.path)


@pytest.mark.parametrize("heals_by", ["upkeep", "growing again", "growing less", "deleting"])
@pytest.mark.parametrize("first_refused", [1, 2, 3])
def test_growth_on_a_full_disk_fails_and_leaves_the_topic_unchanged(first_refused: int, heals_by: str) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        FullDisk(site, first_refused)
        with pytest.raises(MillstreamError) as error:
            await partitions.grow("orders", 6)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(partitions.of("orders")) == 2
        await committed(_get(partitions, 1), batch(b"x"))
        site.disk.before = None
        if heals_by == "upkeep":
            await partitions.upkeep()
        elif heals_by == "deleting":
            await partitions.delete("orders")
        else:
            await partitions.grow("orders", 6 if heals_by == "growing again" else 3)
        await check_in_step(site, partitions)
        await check_in_step(site, await site.restart())

    Site().run(story)


@pytest.mark.parametrize("first_refused", [1, 2, 3])
def test_a_broker_starts_after_a_crash_before_the_growth_cleanup(first_refused: int) -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        FullDisk(site, first_refused)
        with pytest.raises(MillstreamError):
            await partitions.grow("orders", 6)
        site.disk.before = None
        partitions = await site.restart(killed=True)
        assert len(partitions.of("orders")) in (2, 6)
        await check_in_step(site, partitions)

    Site().run(story)


@pytest.mark.parametrize("heals_by", ["nothing", "upkeep", "restart", "deleting"])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("call", ["begin_growth", "finish_growth"])
@pytest.mark.parametrize("stays_away", [False, True])
def test_growth_recovers_from_a_catalog_failure(stays_away: bool, call: str, done: bool, heals_by: str) -> None:
    site, catalog = watched_site()

    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        catalog.fails = call, done
        catalog.stays_away = stays_away
        happened = (call, done, stays_away) == ("finish_growth", True, False)
        if happened:
            assert (await partitions.grow("orders", 4)).partitions == 4
        else:
            with pytest.raises(MillstreamError) as error:
                await partitions.grow("orders", 4)
            assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(partitions.of("orders")) == (4 if happened else 2)
        await committed(_get(partitions, 1), batch(b"x"))
        catalog.stays_away = catalog.is_away = False
        if heals_by == "upkeep":
            await partitions.upkeep()
        elif heals_by == "deleting":
            await partitions.delete("orders")
        elif heals_by == "restart" or stays_away:
            partitions = await site.restart()
        await check_in_step(site, partitions)
        if heals_by != "deleting":
            assert (await partitions.grow("orders", 7)).partitions == 7
        await check_in_step(site, await site.restart(killed=True))

    site.run(story)
