"""Runs a broker as a simulated process that can be crashed at any moment."""

import asyncio
from collections.abc import Callable

from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import MillstreamError
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.loop import SimulatedLoop, described
from millstream.testing.simulated.machine import SimulatedMachine


class BrokerProcess:
    """One run of a broker on a machine. The catalog survives it, as the disk does."""

    def __init__(
        self,
        machine: SimulatedMachine,
        loop: SimulatedLoop,
        catalog: MemoryCatalog,
        settings: BrokerSettings,
        number: int,
        on_end: Callable[[bool], None],
    ) -> None:
        self.process = machine.spawn(str(number), on_end)
        self._machine = machine
        self._loop = loop
        self.node = self.process.call(self._make_node, catalog, settings)

    def _make_node(self, catalog: MemoryCatalog, settings: BrokerSettings) -> Node:
        process = self.process
        return Node(
            settings,
            clock=process.clock,
            disk=process.disk,
            network=process.network,
            workers=process.workers("workers"),
            flush_workers=process.workers("flush", count=2),
            catalog=catalog,
            entropy=SimulatedEntropy(branch(process.random, "entropy")),
        )

    async def start(self) -> bool:
        """Start the broker. Return False if it was crashed meanwhile, or failed to start and has ended."""
        self._machine.note("start")
        task = self.process.create_task(self.node.start(), name="start")
        await asyncio.wait((task, self.process.ended), return_when=asyncio.FIRST_COMPLETED)
        if not self.process.alive:
            return False
        error = task.exception()
        if error is None:
            self._machine.note("started")
            return True
        self._report("start", error)
        self._machine.note("could not start", str(error))
        self._machine.kill(self.process)
        return False

    async def stop(self) -> None:
        """Stop the broker, and wait until it has ended or is crashed."""
        self._machine.note("stop")
        task = self.process.create_task(self.node.stop(), name="stop")
        await asyncio.wait((task, self.process.ended), return_when=asyncio.FIRST_COMPLETED)
        if self.process.alive:
            error = task.exception()
            if error is not None:
                self._report("stop", error)
            self._machine.note("stopped")
            self._machine.kill(self.process)

    def _report(self, step: str, error: BaseException) -> None:
        """Fail the run if the error is not one that a broker expects."""
        if not isinstance(error, (OSError, MillstreamError)):
            self._loop.failures.append(f"{self.process.name}: {step} failed: {described(error)}")
