"""Tests that a suspended partition is led again, whatever the catalog reports."""

import pytest

from builders.batches import batch
from builders.partitions import Site, check_in_step, committed
from builders.watched_catalog import FailingCatalog
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions


def _get(partitions: Partitions) -> Leadership:
    partition = partitions.get("orders", 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_suspended_partition_is_led_again_after_the_catalog_failed_once(done: bool) -> None:
    async def story(site: Site) -> None:
        site.catalog = catalog = FailingCatalog(site)
        partitions = await site.start()
        await partitions.create("orders")
        partition = _get(partitions)
        await committed(partition, batch())
        epoch = partition.leader_epoch
        catalog.fails = ("change_placement", done)
        partition.suspend("lost its end")
        await partitions.upkeep()
        await partitions.upkeep()
        assert _get(partitions) is partition
        assert (partition.is_closed, partition.leader_epoch) == (False, epoch + 1)
        assert await committed(partition, batch()) == 1
        assert partitions.image.placement("orders", 0) == partition.placement
        await check_in_step(site, partitions)

    Site().run(story)


def test_a_suspended_partition_is_led_in_a_new_epoch_after_its_placement_changed() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        partition = _get(partitions)
        epoch = partition.leader_epoch
        assert await site.catalog.change_placement(partition.placement) is not None
        partition.suspend("lost its end")
        await partitions.upkeep()
        assert (_get(partitions) is partition, partition.leader_epoch) == (True, epoch + 1)
        await committed(partition, batch())
        await check_in_step(site, partitions)

    Site().run(story)
