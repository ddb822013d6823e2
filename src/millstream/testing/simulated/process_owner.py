"""Identifies a simulated process, which can be paused as under SIGSTOP, or ended at once as under `kill -9`.

Every callback of the simulated loop keeps the context in which it was scheduled, and callbacks that it schedules
inherit that context. So a context variable identifies the process, and the loop checks the owner of each callback.

Invariants:
- A process is running, paused or dead. A dead one stays dead.
- No code of a dead process runs: the loop drops its callbacks, and no `finally` of its coroutines runs before the
  simulation is over.
- No code of a paused process runs: its callbacks are held here, and run in order when it is resumed.
"""

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar

from millstream.testing.simulated.local_time import LocalTime


class ProcessCrashed(BaseException):
    """Unwinds the code of a process that crashed within a step. No code may catch it."""


class SimulatedOwner:
    """One simulated process. `local_time` is the clock of its machine, or None for the loop's clock."""

    __slots__ = ("_ready", "_timers", "alive", "local_time", "name", "runs")

    def __init__(self, name: str, local_time: LocalTime | None = None) -> None:
        self.name = name
        self.local_time = local_time
        self.alive = True
        self.runs = True
        """True while the process is neither paused nor dead."""
        self._ready: list[asyncio.Handle] = []
        self._timers: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<{self.name}, {'dead' if not self.alive else 'running' if self.runs else 'paused'}>"

    @property
    def is_paused(self) -> bool:
        return self.alive and not self.runs

    def die(self) -> None:
        """End the process permanently."""
        self.alive = self.runs = False
        self._ready.clear()
        self._timers.clear()

    def pause(self) -> None:
        """Pause the process, as SIGSTOP does."""
        assert self.alive, f"{self.name} is dead"
        self.runs = False

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a due callback of the paused process."""
        assert self.is_paused, f"{self.name} is not paused"
        self._keep(handle)

    def _keep(self, handle: asyncio.Handle) -> None:
        (self._timers if isinstance(handle, asyncio.TimerHandle) else self._ready).append(handle)

    def resume(self, due: Iterable[asyncio.Handle] = ()) -> list[asyncio.Handle]:
        """Continue the process, and return its callbacks in the order of a real loop that is resumed.

        `due` contains the callbacks that became due after the held ones. Ready callbacks and received input come first,
        then the timers that expired meanwhile, by time.
        """
        assert self.alive, f"{self.name} is dead"
        for handle in due:
            self._keep(handle)
        self.runs = True
        held = [*self._ready, *self._timers]
        self._ready.clear()
        self._timers.clear()
        return held


OWNER: ContextVar[SimulatedOwner | None] = ContextVar("millstream_simulated_owner", default=None)
"""The process whose code runs now, or None for the simulation itself, which never crashes."""
