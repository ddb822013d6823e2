"""Tests message ids after a power loss before every disk operation, and after failed flushes."""

import asyncio
import copy
from random import Random
from typing import NamedTuple

import pytest

from builders.loops import for_each
from builders.partitions import Site, read_all
from builders.putting import put_ids, put_numbered, retry, stored_ids
from millstream.catalog.catalog import Catalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.served.partitions import Partitions
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

TINY = ProducerLimits(ids=IdLimits(in_memory_each=6))
FRESH = (b"fresh", b"fresher", b"freshest")
WRITER, GONE_WRITER = 7, 8


class Moment(NamedTuple):
    """The durable state before one disk operation, and what clients had sent and received by then."""

    disk: SimulatedDisk
    catalog: Catalog
    told: dict[bytes | MadeId, int]
    sent: list[bytes | MadeId]


class Witness:
    """Records every moment."""

    def __init__(self, site: Site) -> None:
        self.moments: list[Moment] = []
        self.told: dict[bytes | MadeId, int] = {}
        self.sent: list[bytes | MadeId] = []
        self._site = site
        site.disk.before = self

    def __call__(self, operation: DiskOperation) -> None:
        disk = self._site.disk
        disk.before = None
        kept = copy.deepcopy(disk)
        disk.before = self
        self.moments.append(Moment(kept, copy.deepcopy(self._site.catalog), dict(self.told), list(self.sent)))

    async def put(self, partition: Leadership, *ids: bytes) -> None:
        self.sent += ids
        self.told |= dict(zip(ids, await put_ids(partition, *ids), strict=True))

    async def put_numbered(self, partition: Leadership, sequence: int) -> None:
        made = [MadeId(WRITER, 0, 0, sequence, place) for place in range(2)]
        self.sent += made
        first = await put_numbered(partition, WRITER, sequence, *map(MadeId.encode, made))
        self.told |= {each: first + number for number, each in enumerate(made)}

    async def retry(self, partition: Leadership, made: MadeId) -> None:
        self.sent.append(made)
        self.told[made] = await retry(partition, made, made.encode())


def never() -> bool:
    return False


def events(partitions: Partitions) -> Leadership:
    partition = partitions.get("events", 0)
    assert partition is not None
    return partition


async def _busy_life(site: Site) -> list[Moment]:
    """Run puts of all kinds, saves, merges and restarts under observation."""
    partitions = await site.start(limits=TINY)
    await partitions.create("events", 1)
    witness, partition = Witness(site), events(partitions)
    for number in range(12):
        await witness.put(partition, b"%d" % number, b"%d'" % number)
        await witness.put_numbered(partition, number * 2)
        if number % 3 == 0:
            await witness.retry(partition, MadeId(GONE_WRITER, number, 0, 5, 1))
        if number in (2, 4):
            await partition.replica.save_ids()
        if number == 5:
            await partition.replica.save_state()
        if number == 7:
            partition = events(await site.restart(limits=TINY))
        if number == 9:
            await partition.replica.save_ids()
            await partition.replica.merge_ids(never)
            assert site.store is not None
            await site.store.checkpoint()
    site.disk.before = None
    return witness.moments


async def _where(partition: Leadership, what: bytes | MadeId) -> int:
    if isinstance(what, MadeId):
        return await retry(partition, what, what.encode())
    return (await put_ids(partition, what))[0]


async def _check(site: Site, moment: Moment) -> None:
    """Send everything again. Acknowledged messages get the same offset, and the log has each message once."""
    partition = events(await site.start(limits=TINY))
    # Other messages get the offsets that the power loss freed. The index must not keep their old entries.
    found: dict[bytes | MadeId, int] = dict(zip(FRESH, await put_ids(partition, *FRESH), strict=True))
    await site.kill()
    partition = events(await site.start(limits=TINY))
    found |= {what: await _where(partition, what) for what in moment.sent}
    if site.policy is FlushPolicy.ALWAYS:
        assert {what: found[what] for what in moment.told} == moment.told
    records = {record.offset: record.value for record in await read_all(partition)}
    for what, offset in found.items():
        assert records[offset] == (what.encode() if isinstance(what, MadeId) else what)
    assert len(records) == len(found), "nothing is there twice"
    await site.stop()
    partition = events(await site.start(limits=TINY))
    assert {what: await _where(partition, what) for what in found} == found
    await site.stop()


@pytest.mark.parametrize("policy", [FlushPolicy.ALWAYS, FlushPolicy.OS])
@for_each("seed", range(3))
def test_retries_after_any_power_loss_store_every_id_once(seed: int, policy: FlushPolicy) -> None:
    async def story(site: Site) -> None:
        moments = await _busy_life(site)
        await site.stop()
        assert len(moments) > 80
        for number, moment in enumerate(moments):
            site.disk, site.catalog = moment.disk, moment.catalog
            site.disk.locks.clear()
            site.disk.power_loss(Random(seed * 10_000 + number))
            await _check(site, moment)

    Site(policy=policy).run(story)


def test_a_retry_after_a_failed_flush_stores_an_id_once() -> None:
    cuts: list[int] = []

    async def story(site: Site) -> None:
        partitions = await site.start(limits=TINY)
        await partitions.create("events")
        partition = events(partitions)
        await put_ids(partition, b"before")
        await partition.replica.save_ids()
        site.disk.flush_error_chance = 1.0
        with pytest.raises(MillstreamError) as error:
            await put_ids(partition, b"a")
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.flush_error_chance = 0.0
        for _ in range(2):
            assert await _until_accepted(partition, b"before", b"a") == [0, 1]
        cuts.append(partition.log.truncations)
        partition = events(await site.restart(killed=True, limits=TINY))
        assert await put_ids(partition, b"before", b"a", b"b") == [0, 1, 2]
        assert max((await stored_ids(partition)).values()) == 1

    for seed in range(25):
        site = Site()
        site.disk.random = Random(seed)
        site.run(story)
    assert min(cuts) == 0
    assert max(cuts) > 0, "among so many seeds some have lost the first copy"


async def _until_accepted(partition: Leadership, *ids: bytes) -> list[int]:
    """Retry like a client, as long as the error is retriable."""
    while True:
        try:
            return await put_ids(partition, *ids)
        except MillstreamError as error:
            if not error.code.retriable:
                raise
            await asyncio.sleep(0.005)
