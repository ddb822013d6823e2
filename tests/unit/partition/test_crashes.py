"""Tests acknowledged messages after a power loss before every disk operation, and after failed flushes."""

import asyncio
import copy
from random import Random
from typing import NamedTuple

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.partitions import Site, committed, read_all
from millstream.catalog.catalog import Catalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

PRODUCER = 7


class Moment(NamedTuple):
    """The durable state before one disk operation, and what clients knew by then."""

    disk: SimulatedDisk
    catalog: Catalog
    topics: dict[str, bool]
    acknowledged: list[bytes]


class Witness:
    """Records every moment."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.moments: list[Moment] = []
        self.topics: dict[str, bool] = {}
        self.acknowledged: list[bytes] = []
        site.disk.before = self

    def __call__(self, operation: DiskOperation) -> None:
        disk = self.site.disk
        disk.before = None
        kept = copy.deepcopy(disk)
        disk.before = self
        self.moments.append(Moment(kept, copy.deepcopy(self.site.catalog), dict(self.topics), list(self.acknowledged)))


def _batch(number: int) -> bytearray:
    return batch(b"%d" % number, producer_id=PRODUCER, producer_epoch=0, base_sequence=number)


def _orders(partitions: Partitions) -> Leadership:
    partition = partitions.get("orders", 0)
    assert partition is not None
    return partition


async def _busy_life(site: Site) -> list[Moment]:
    """Create, write, save, delete and restart under observation."""
    witness = Witness(site)
    partitions = await site.start()
    for name in ("orders", "bills"):
        await partitions.create(name, 2)
        witness.topics[name] = True
    for number in range(12):
        await committed(_orders(partitions), _batch(number))
        witness.acknowledged.append(b"%d" % number)
        if number == 3:
            await _orders(partitions).replica.save_state()
        elif number == 5:
            witness.topics.pop("bills")
            await partitions.delete("bills")
            witness.topics["bills"] = False
        elif number == 7:
            partitions = await site.restart()
        elif number == 9:
            await partitions.upkeep()
            assert site.store is not None
            await site.store.checkpoint()
    site.disk.before = None
    return witness.moments


@for_each("seed", range(3))
def test_acknowledged_messages_survive_any_power_loss_once_and_in_order(seed: int) -> None:
    async def story(site: Site) -> None:
        moments = await _busy_life(site)
        await site.stop()
        assert len(moments) > 80
        for number, moment in enumerate(moments):
            site.disk, site.catalog = moment.disk, moment.catalog
            site.disk.locks.clear()
            site.disk.power_loss(Random(seed * 10_000 + number))
            await _check(site, moment)

    Site().run(story)


async def _check(site: Site, moment: Moment) -> None:
    partitions = await site.start()
    for name, exists in moment.topics.items():
        assert (partitions.image.topic(name) is not None) is exists
    for topic in partitions.image.topics():
        assert len(partitions.of(topic.name)) == 2
    if partitions.image.topic("orders") is not None:
        partition = _orders(partitions)
        values = [record.value for record in await read_all(partition)]
        known = len(moment.acknowledged)
        assert values[:known] == moment.acknowledged
        assert values in (moment.acknowledged, [*moment.acknowledged, b"%d" % known])
        # The producer got no response to its last batch and sends it again. The log must have it once.
        for sent in range(max(0, known - 2), known + 2):
            assert await committed(partition, _batch(sent)) == sent
        values = [record.value for record in await read_all(partition)]
        assert values == [b"%d" % sent for sent in range(known + 2)]
    await site.stop()


def test_a_retry_after_a_failed_flush_is_stored_once() -> None:
    cuts: list[int] = []

    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders")
        partition = _orders(partitions)
        await committed(partition, _batch(0))
        site.disk.flush_error_chance = 1.0
        with pytest.raises(MillstreamError) as error:
            await committed(partition, _batch(1))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.flush_error_chance = 0.0
        epoch = partition.leader_epoch
        for number in (1, 2):
            assert await _until_accepted(partition, number) == number
        assert [record.value for record in await read_all(partition)] == [b"0", b"1", b"2"]
        assert partition.leader_epoch == epoch + partition.log.truncations
        cuts.append(partition.log.truncations)
        partition = _orders(await site.restart(killed=True))
        assert await committed(partition, _batch(2)) == 2
        assert [record.value for record in await read_all(partition)] == [b"0", b"1", b"2"]

    for seed in range(25):
        site = Site()
        site.disk.random = Random(seed)
        site.run(story)
    assert min(cuts) == 0
    assert max(cuts) > 0, "among so many seeds some have lost the first copy"


async def _until_accepted(partition: Leadership, number: int) -> int:
    """Retry like a client, as long as the error is retriable."""
    while True:
        try:
            return await committed(partition, _batch(number))
        except MillstreamError as error:
            if not error.code.retriable:
                raise
            await asyncio.sleep(0.005)
