"""Simulates a process: any asyncio program that takes its clock, disk, network and workers from here.

Invariant: all code of the process runs in its owner's context. Guarantees:
- A crash stops the process between two steps of the loop, or within a step, at a change of the disk. Afterwards none of
  its code runs, and none of its effects reach the disk or the network.
- The same things survive as with a real process: the disk (with or without the page cache), and the bytes that had left
  for the network.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import branch
from millstream.testing.simulated.guarded_disk import CrashGuard, GuardedDisk, Note
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import HostNetwork
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.workers import SimulatedWorkers, Slowness

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedProcess:
    """One run of a program. Its machine creates it (`SimulatedMachine.spawn`) and ends it (`kill`, `power_loss`)."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        *,
        clock: SimulatedClock,
        disk: SimulatedDisk,
        network: HostNetwork,
        random: Random,
        slowness: Slowness,
        note: Note,
    ) -> None:
        self.name = name
        self.clock = clock
        self.network = network
        self.owner = SimulatedOwner(name, clock.local_time)
        self.guard = CrashGuard(self.owner, note)
        self.disk = GuardedDisk(disk, self.guard)
        self.random = random
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the process has ended for any reason."""
        self._loop = loop
        self._slowness = slowness
        self._note = note
        self._context: Context = copy_context()
        self._context.run(OWNER.set, self.owner)

    @property
    def alive(self) -> bool:
        return self.owner.alive

    def workers(self, name: str, *, count: int = 4) -> SimulatedWorkers:
        """Worker threads of this process."""
        return SimulatedWorkers(self._loop, branch(self.random, name), count=count, slowness=self._slowness)

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function as code of this process."""
        assert self._context[OWNER] is self.owner, "all code of a process runs in its owner's context"
        return self._context.run(function, *args)

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        assert self._context[OWNER] is self.owner, "all code of a process runs in its owner's context"
        return self._loop.create_task(coroutine, name=name, context=self._context.copy())

    def pause(self) -> None:
        """Pause the process, as SIGSTOP does: its timers and its input wait for `resume`."""
        self._note("pause", self.name)
        self._loop.pause(self.owner)

    def resume(self) -> None:
        """Continue the process, as SIGCONT does."""
        self._note("resume", self.name)
        self._loop.resume(self.owner)
