"""Runs a whole broker and a client in simulated time, on a disk in memory."""

from collections.abc import Awaitable, Callable
from random import Random

from builders.sdk.writing_client import WritingClient
from millstream.catalog.memory import MemoryCatalog
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.sdk.aio.client import AsyncClient, connect_async
from millstream.sdk.metrics import Metrics
from millstream.seams.workers import Workers
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.workers import SimulatedWorkers

HOST = "broker"


class SimulatedMachine:
    """The state that outlives a broker: one broker after another starts on the same data."""

    def __init__(self, loop: SimulatedLoop, settings: BrokerSettings) -> None:
        self._random = Random(1)
        self._loop = loop
        self._settings = settings
        self.clock = SimulatedClock(loop)
        self.entropy = SimulatedEntropy(Random(2))
        self.network = SimulatedNetwork(loop, Random(3))
        self._catalog = MemoryCatalog(self.clock, self.entropy)
        self.disk = SimulatedDisk()

    def new_workers(self) -> Workers:
        """Make the workers of one client."""
        return SimulatedWorkers(self._loop, Random(4))

    async def start(self) -> Node:
        node = Node(
            self._settings,
            clock=self.clock,
            disk=self.disk,
            network=self.network.host(HOST),
            workers=SimulatedWorkers(self._loop, self._random),
            flush_workers=SimulatedWorkers(self._loop, self._random, count=2),
            catalog=self._catalog,
            entropy=self.entropy,
        )
        await node.start()
        return node

    async def client(self, host: str = "client") -> WritingClient:
        network = self.network.host(host)
        return await WritingClient.connect(
            f"{HOST}:9092",
            network=network,
            clock=self.clock,
            entropy=self.entropy,
            workers=self.new_workers(),
        )

    async def connect(
        self, host: str = "client", metrics: Metrics | None = None, workers: Workers | None = None
    ) -> AsyncClient:
        """Connect a public client."""
        network = self.network.host(host)
        return await connect_async(
            f"{HOST}:9092",
            metrics=metrics,
            network=network,
            clock=self.clock,
            entropy=self.entropy,
            workers=workers or self.new_workers(),
        )


def simulate(settings: BrokerSettings, story: Callable[[SimulatedMachine], Awaitable[None]]) -> None:
    """Run a story on a simulated machine."""
    loop = SimulatedLoop()
    machine = SimulatedMachine(loop, settings)

    async def whole() -> None:
        await story(machine)

    try:
        loop.run_until_complete(whole())
        assert loop.failures == []
    finally:
        loop.end()
