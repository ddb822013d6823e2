"""Rolls back, loses or damages the disk of a real broker: it must serve the remaining data and no altered message."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.node.settings import BrokerSettings
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachines
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.workers import SimulatedWorkers
from millstream.testing.simulation.broker_service import BrokerService
from millstream.testing.simulation.history import History
from millstream.testing.simulation.plan import TopicPlan
from millstream.testing.simulation.repeatable import repeatable_run
from millstream.testing.simulation.settling import within
from millstream.testing.simulation.workload import HistoryRecorder, create_topics, read_whole

HOST = "broker"
TOPIC = TopicPlan("orders", 1, -1)


class Site:
    """One broker on one machine, and its client."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.trace = Trace(kept=100_000)
        self.machines = SimulatedMachines(loop, Random(5), trace=self.trace)
        self.machine = self.machines.add(HOST)
        settings = BrokerSettings(data=("/data",), host=HOST, operator_port=-1, offsets_partitions=1)
        catalog = MemoryCatalog(self.machine.clock, SimulatedEntropy(Random(6)))
        self.broker = BrokerService(self.machine, loop, catalog, settings, restart_delay_s=1.0)

    async def run(self, story: Callable[["Site"], Awaitable[None]]) -> None:
        keeper = self.loop.create_task(self.broker.run())
        await create_topics(self.client(), [TOPIC])
        await story(self)
        await self.broker.end()
        await keeper

    def client(self) -> WireClient:
        return WireClient(
            f"{HOST}:9092",
            network=self.machines.network.host("client"),
            clock=self.machine.clock,
            entropy=SimulatedEntropy(Random(7)),
            workers=SimulatedWorkers(self.loop, Random(8)),
        )

    async def put(self, *values: str) -> None:
        async with self.client().producer(ProducerSettings()) as producer:
            for value in values:
                await producer.put("orders", value.encode(), partition=0)

    def events(self, text: str) -> list[str]:
        return [line for line in self.trace.last if text in line]

    async def read(self) -> list[str]:
        book = HistoryRecorder(History(), self.machine.note, None)
        reading = read_whole(self.client(), TopicPartition("orders", 0), book)
        log = await within(60, reading, "reading")
        return [value.decode() for _, value in log.records]


def is_segment(path: str) -> bool:
    return path.endswith(".log")


@pytest.fixture
def site() -> Iterator[Site]:
    loop = SimulatedLoop()
    site = Site(loop)
    with repeatable_run(loop, site.trace):
        yield site
    assert loop.failures == []
    loop.end()


def test_a_broker_on_a_rolled_back_disk_serves_its_old_content(site: Site) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        snapshot = site.machine.disk.snapshot()
        await site.put("three")
        assert await site.read() == ["one", "two", "three"]
        site.broker.roll_back_disk(snapshot)
        assert await site.read() == ["one", "two"]
        await site.put("four")
        assert await site.read() == ["one", "two", "four"]

    site.loop.run_until_complete(site.run(story))
    assert len(site.events("disk rolled back 'broker'")) == 1


def test_a_broker_refuses_to_start_on_an_empty_disk_that_should_have_logs(site: Site) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        snapshot = site.machine.disk.snapshot()
        site.broker.lose_disk()
        await asyncio.sleep(5)
        assert site.events("could not start")
        assert all("DATA_DIRECTORY_MISSING" in event for event in site.events("could not start"))
        site.broker.roll_back_disk(snapshot)
        assert await site.read() == ["one", "two"]

    site.loop.run_until_complete(site.run(story))


def flip_while_down(site: Site, bit: int) -> None:
    disk = site.machine.disk
    (path,) = filter(is_segment, disk.flushed_files())
    site.broker.crash(power_loss=True)
    disk.flip_bit(path, bit % (8 * len(disk.contents(path))))


BITS = [8 * 16, 8 * 20 + 3, -1]


@pytest.mark.parametrize("bit", BITS)
def test_a_bit_flipped_before_the_checkpoint_quarantines_the_partition(site: Site, bit: int) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        await asyncio.sleep(100)  # After this time the checkpoint covers the messages.
        flip_while_down(site, bit)
        with pytest.raises(MillstreamError) as raised:
            await site.read()
        assert raised.value.code is ErrorCode.PARTITION_QUARANTINED
        assert len(site.events("partition quarantined")) == 1

    site.loop.run_until_complete(site.run(story))


@pytest.mark.parametrize("bit", BITS)
def test_a_bit_flipped_below_the_flushed_end_mark_quarantines_the_partition(site: Site, bit: int) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        await asyncio.sleep(5)  # After this time the end mark is flushed, but there is no new checkpoint.
        flip_while_down(site, bit)
        with pytest.raises(MillstreamError) as raised:
            await site.read()
        assert raised.value.code is ErrorCode.PARTITION_QUARANTINED

    site.loop.run_until_complete(site.run(story))


@pytest.mark.parametrize("bit", BITS)
def test_a_bit_flipped_above_the_flushed_end_mark_is_reported_and_not_served(site: Site, bit: int) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        site.machine.disk.remove("/data/end-marks")  # As if its last version had not reached the disk.
        flip_while_down(site, bit)
        assert await site.read() in ([], ["one"])
        assert len(site.events("log truncated, acknowledged data may be lost")) == 1

    site.loop.run_until_complete(site.run(story))


def test_a_cold_read_quarantines_a_partition_whose_segment_has_a_flipped_bit(site: Site) -> None:
    async def story(site: Site) -> None:
        await site.put("one", "two")
        assert await site.read() == ["one", "two"]
        site.machine.disk.cold_chance = 1.0
        path = site.machine.flip_bit(is_segment)
        assert site.events(f"bit flip 'broker' '{path}'")
        with pytest.raises(MillstreamError) as raised:
            await site.read()
        assert raised.value.code is ErrorCode.PARTITION_QUARANTINED

    site.loop.run_until_complete(site.run(story))
