"""A broker as a process: it starts, it can be crashed at any moment, and another one starts on the same disk.

Invariants:
- all code of the process runs in its owner's context, so a crash stops it between two steps of the loop, or within
  one, at a change of the disk; afterwards nothing of it runs, and nothing it does reaches disk or network;
- what outlives it is what outlives a real one: the disk (with or without the page cache), the catalog, and the bytes
  that had left for the network.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random

from millstream.catalog.memory import MemoryCatalog
from millstream.model.errors import MillstreamError
from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import SimulatedEntropy, branch
from millstream.testing.simulated.guarded_disk import CrashGuard, GuardedDisk
from millstream.testing.simulated.loop import SimulatedLoop, described
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness
from millstream.testing.simulation.trace import Trace


@dataclass(slots=True)
class SimulatedMachine:
    """What a broker runs on and what stays when it is gone."""

    loop: SimulatedLoop
    random: Random
    trace: Trace
    network: SimulatedNetwork
    clock: SimulatedClock
    disk: SimulatedDisk
    catalog: MemoryCatalog
    host: str
    slowness: Slowness

    def note(self, event: str, *values: str | int | float) -> None:
        self.trace.note(self.loop.time(), event, *values)


class BrokerProcess:
    """One life of a broker. `ended` is done when it is over, whichever way."""

    def __init__(
        self, machine: SimulatedMachine, settings: BrokerSettings, number: int, on_crash: Callable[[bool], None]
    ) -> None:
        self._machine = machine
        self._on_crash = on_crash
        self._power_loss_planned = False
        self._owner = SimulatedOwner(f"{machine.host} {number}")
        self._guard = CrashGuard(self._owner, machine.note, lambda: self.crash(power_loss=self._power_loss_planned))
        self._disk = GuardedDisk(machine.disk, self._guard)
        self._context: Context = copy_context()
        self._context.run(OWNER.set, self._owner)
        self.ended: asyncio.Future[None] = machine.loop.create_future()
        self.node = self._context.run(self._make_node, settings)

    def _make_node(self, settings: BrokerSettings) -> Node:
        machine = self._machine
        random = branch(machine.random, "process")
        return Node(
            settings,
            clock=machine.clock,
            disk=self._disk,
            network=machine.network.host(machine.host),
            workers=SimulatedWorkers(machine.loop, branch(random, "workers"), slowness=machine.slowness),
            flush_workers=SimulatedWorkers(machine.loop, branch(random, "flush"), count=2, slowness=machine.slowness),
            catalog=machine.catalog,
            entropy=SimulatedEntropy(branch(random, "entropy")),
        )

    @property
    def alive(self) -> bool:
        return self._owner.alive

    async def start(self) -> bool:
        """Start the broker; False when it was crashed meanwhile, or could not start and has ended by itself."""
        self._machine.note("start")
        task = self._machine.loop.create_task(self.node.start(), name="start", context=self._context.copy())
        await asyncio.wait((task, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not self.alive:
            return False
        error = task.exception()
        if error is None:
            self._machine.note("started")
            return True
        if not isinstance(error, (OSError, MillstreamError)):
            self._machine.loop.failures.append(f"{self._owner.name}: start failed: {described(error)}")
        self._machine.note("could not start", str(error))
        self.crash(power_loss=False)
        return False

    async def stop(self) -> None:
        """Ask the broker to end, and wait until it has, unless it is crashed meanwhile."""
        self._machine.note("stop")
        task = self._machine.loop.create_task(self.node.stop(), name="stop", context=self._context.copy())
        await asyncio.wait((task, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if self.alive:
            error = task.exception()
            if error is not None and not isinstance(error, (OSError, MillstreamError)):
                self._machine.loop.failures.append(f"{self._owner.name}: stop failed: {described(error)}")
            self._machine.note("stopped")
            self.crash(power_loss=False)

    def crash(self, *, power_loss: bool) -> None:
        """End the process now. May be called from its own code, which is then unwound by `ProcessCrashed`."""
        if not self._owner.alive:
            return
        machine = self._machine
        machine.note("power loss" if power_loss else "process ends")
        self._owner.alive = False
        machine.network.vanish(machine.host, silent=power_loss and machine.random.random() < 0.5)
        self._disk.release()
        if power_loss:
            machine.disk.power_loss()
        self._on_crash(power_loss)
        self.ended.set_result(None)

    def crash_in_write(self, changes: int, *, power_loss: bool) -> None:
        """Crash at the so-many-th change of the disk from now, before it or after it as the seed decides."""
        self._power_loss_planned = power_loss
        self._guard.crash_in(changes, after=self._machine.random.random() < 0.5)
