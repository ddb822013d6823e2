"""Keeps disk, catalog and clock of a simulated machine while brokers start and stop on it.

A subclass adds what runs over the partitions: `begin` starts it and `end` stops it.
"""

import copy
from random import Random

from builders.partitions import a_cluster, move_leader
from millstream.catalog.memory import MemoryCatalog
from millstream.model.ids import BrokerId
from millstream.partition.served.partitions import Partitions
from millstream.seams.workers import Workers
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.workers import SimulatedWorkers


class SimulatedSite:
    def __init__(self, loop: SimulatedLoop, seed: int, policy: FlushPolicy) -> None:
        self.loop = loop
        self.random = Random(seed)
        self.policy = policy
        self.clock = SimulatedClock(loop)
        self.entropy = SimulatedEntropy(Random(seed + 1))
        self.catalog = MemoryCatalog(self.clock, self.entropy)
        self.disk = SimulatedDisk(Random(seed + 2))
        self.store: LogStore | None = None
        self._partitions: Partitions | None = None

    @property
    def partitions(self) -> Partitions:
        assert self._partitions is not None
        return self._partitions

    async def begin(self, workers: Workers) -> None: ...

    async def end(self) -> None: ...

    async def loaded(self) -> None: ...

    async def start(self) -> None:
        workers = SimulatedWorkers(self.loop, self.random)
        self.store = await LogStore.open(
            ["/data"],
            disk=self.disk,
            clock=self.clock,
            workers=workers,
            flush_workers=SimulatedWorkers(self.loop, self.random, count=2),
            policy=self.policy,
            entropy=self.entropy,
        )
        self._partitions = Partitions(
            self.catalog, self.store, clock=self.clock, workers=workers, cluster=a_cluster(), upkeep_s=5
        )
        await self._partitions.open()
        await self.begin(workers)

    async def move_leader(self, topic: str, number: int, leader: BrokerId) -> None:
        """Make a broker the leader of a partition."""
        await move_leader(self.catalog, self.partitions, (topic, number), leader)

    async def stop(self) -> None:
        await self.end()
        partitions, self._partitions = self._partitions, None
        store, self.store = self.store, None
        if partitions is not None:
            await partitions.close()
        if store is not None:
            await store.close()

    async def crash(self, *, power_loss: bool = True) -> None:
        """Stop the broker like a power loss: the disk keeps its current state."""
        kept = copy.deepcopy(self.disk)
        kept.locks.clear()
        if power_loss:
            kept.power_loss(self.random)
        await self.stop()
        self.disk = kept

    async def restart(self, *, crashed: bool = False) -> None:
        await (self.crash() if crashed else self.stop())
        await self.start()
        await self.loaded()
