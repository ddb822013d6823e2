"""A place where brokers run one after another: data directory, catalog and clock stay, partitions come and go."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from builders.batches import SOME_TIME_MS
from millstream.catalog.catalog import Catalog, TopicState
from millstream.catalog.memory import MemoryCatalog
from millstream.partition.partition import Partition
from millstream.partition.served.partitions import Partitions
from millstream.records.batch import decode_batches
from millstream.records.header import each_batch
from millstream.records.record import Record
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.workers import ThreadWorkers, Workers
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import SimulatedDisk

T = TypeVar("T")

NODE_ID = 1


class TurnedClock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now_ms = SOME_TIME_MS
        self.jumped_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.jumped_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def turn(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


class InlineWorkers:
    """Workers that do everything at once, where it is asked for: then a killed broker has nothing under way."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


class SlowWorkers:
    """Workers that take their time, and know how much was under way beside one another."""

    def __init__(self) -> None:
        self.busy = self.busiest = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.ensure_future(self._do(work))

    async def _do(self, work: Callable[[], T]) -> T:
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        for _ in range(3):
            await asyncio.sleep(0)
        self.busy -= 1
        return work()

    def close(self) -> None:
        pass


class Site:
    """What stays when a broker ends: with a directory on the real disk and with threads, without one in memory."""

    def __init__(self, directory: Path | None = None, *, policy: FlushPolicy = FlushPolicy.ALWAYS) -> None:
        self.data = str(directory or "/data")
        self.policy = policy
        self.clock = TurnedClock()
        self.catalog: Catalog = MemoryCatalog(self.clock, SystemEntropy())
        self.disk = SimulatedDisk()
        self._real_disk = LocalDisk() if directory else None
        self._workers: Workers = ThreadWorkers(2, "work") if directory else InlineWorkers()
        self.store: LogStore | None = None
        self.partitions: Partitions | None = None

    async def start(self, defaults: Mapping[str, str] | None = None, **options: Any) -> Partitions:
        self.store = await LogStore.open(
            [self.data],
            disk=self._real_disk or self.disk,
            clock=self.clock,
            workers=self._workers,
            flush_workers=self._workers,
            policy=self.policy,
            entropy=SystemEntropy(),
        )
        self.partitions = await Partitions(
            self.catalog,
            self.store,
            clock=self.clock,
            workers=self._workers,
            node_id=NODE_ID,
            defaults=defaults,
            **options,
        ).open()
        return self.partitions

    async def stop(self) -> None:
        partitions, self.partitions = self.partitions, None
        store, self.store = self.store, None
        if partitions is not None:
            await partitions.close()
        if store is not None:
            await store.close()

    async def kill(self, *, power_loss: Random | None = None) -> None:
        """End the broker as `kill -9` would, or as the plug would: the disk stays as it is at this moment."""
        assert self._real_disk is None, "only a disk in memory stands still while somebody looks"
        kept = copy.deepcopy(self.disk)
        kept.locks.clear()
        if power_loss is not None:
            kept.power_loss(power_loss)
        self.disk.before = None
        await self.stop()
        self.disk = kept

    async def restart(self, *, killed: bool = False, **options: Any) -> Partitions:
        await (self.kill() if killed else self.stop())
        return await self.start(**options)

    def run(self, story: Callable[["Site"], Awaitable[None]]) -> None:
        """Run a story that uses this place, and end whatever is left of it."""

        async def whole() -> None:
            try:
                await story(self)
            finally:
                await self.stop()

        try:
            asyncio.run(whole())
        finally:
            self._workers.close()


async def committed(partition: Partition, records: bytes | bytearray) -> int:
    """Append, wait until it is acknowledged, and give its offset."""
    appended = partition.append(memoryview(bytearray(records)))
    if appended.committed is not None:
        await appended.committed
    return appended.base_offset


async def read_all(partition: Partition, offset: int | None = None, max_bytes: int = 10_000_000) -> list[Record]:
    """All records that can be read from `offset` (the start) on."""
    records: list[Record] = []
    position = partition.log.start_offset if offset is None else offset
    while True:
        found = partition.read(position, max_bytes)
        data = await partition.read_cold(position, max_bytes) if found is None else found[0]
        if not data:
            return records
        if not isinstance(data, bytes | bytearray):
            data = data.read(len(data))
        records += [record for record in decode_batches(data) if record.offset >= position]
        *_, (_, last) = each_batch(data)
        position = last.next_offset


async def check_in_step(site: Site, partitions: Partitions) -> None:
    """What memory serves is what the catalog has as ready, and there are logs for just that."""
    ready = {topic.topic_id: topic for topic in await site.catalog.topics() if topic.state is TopicState.READY}
    assert {topic.topic_id: topic.name for topic in partitions.topics()} == {i: t.name for i, t in ready.items()}
    served = {partition.key for partition in partitions.all()}
    assert served == {placement.key for placement in await site.catalog.placements() if placement.key.topic_id in ready}
    assert site.store is not None
    assert set(site.store.keys()) == served
