"""Simulates machines: each has a host name, a disk and clocks. One network connects them, and one loop runs them.

```python
machines = SimulatedMachines(loop, Random(7))
machine = machines.add("broker-1", rate=1.1)
process = machine.spawn("server")
process.create_task(serve(process.network, process.disk, process.clock))
process.pause()
machine.power_loss()
```
"""

from collections.abc import Callable, Iterator
from random import Random

from millstream.testing.simulated.clock import WALL_START_MS, SimulatedClock
from millstream.testing.simulated.disk import DiskSnapshot, SimulatedDisk
from millstream.testing.simulated.entropy import branch
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.process import SimulatedProcess
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.transport import Conditions
from millstream.testing.simulated.workers import Slowness


class SimulatedMachine:
    """One host. Its disk and its clocks survive the processes that run on it."""

    def __init__(
        self,
        host: str,
        loop: SimulatedLoop,
        random: Random,
        *,
        clock: SimulatedClock,
        network: SimulatedNetwork,
        trace: Trace,
        slowness: Slowness,
    ) -> None:
        self.host = host
        self.clock = clock
        self.disk = SimulatedDisk(branch(random, "disk"))
        self._loop = loop
        self._random = random
        self._network = network
        self._trace = trace
        self._slowness = slowness
        self._processes: dict[SimulatedProcess, Callable[[bool], None]] = {}

    def note(self, event: str, *values: str | int | float) -> None:
        """Add an event of this machine to the trace."""
        self._trace.note(self._loop.true_time(), event, self.host, *values)

    @property
    def processes(self) -> list[SimulatedProcess]:
        """The processes that are alive, oldest first."""
        return list(self._processes)

    def spawn(self, name: str, on_end: Callable[[bool], None] = lambda _: None) -> SimulatedProcess:
        """Start a process. `on_end` is called when it ends, with True after a power loss."""
        process = SimulatedProcess(
            f"{self.host} {name}",
            self._loop,
            clock=self.clock,
            disk=self.disk,
            network=self._network.host(self.host),
            random=branch(self._random, "process"),
            slowness=self._slowness,
            note=self.note,
        )
        self._processes[process] = on_end
        return process

    # Faults

    def kill(self, process: SimulatedProcess) -> None:
        """End a process now, as `kill -9` does. The page cache survives. Do nothing if the process is dead.

        The process's own code may call it; `ProcessCrashed` then unwinds that code.
        """
        if process in self._processes:
            self.note("process ends", process.name)
            self._end([process], power_loss=False)

    def power_loss(self) -> None:
        """End all processes and lose unflushed data. The machine is available again at once."""
        self.note("power loss")
        self._end(self.processes, power_loss=True)

    def crash_in_write(self, process: SimulatedProcess, changes: int, *, power_loss: bool) -> None:
        """Crash at the given number of disk changes from now, before or after the change as the seed determines."""

        def crash() -> None:
            if power_loss:
                self.power_loss()
            else:
                self.kill(process)

        process.guard.crash_in(changes, after=self._random.random() < 0.5, crash=crash)

    def lose_disk(self, *, reboots: bool = True) -> None:
        """Replace the disk by an empty one. No process may be alive."""
        self._replace_disk("disk lost", None, reboots)

    def roll_back_disk(self, snapshot: DiskSnapshot, *, reboots: bool = True) -> None:
        """Restore the disk to an earlier `disk.snapshot()`. No process may be alive."""
        self._replace_disk("disk rolled back", snapshot, reboots)

    def flip_bit(self, selects: Callable[[str], bool] = lambda _: True) -> str | None:
        """Flip one flushed bit in a file that the seed chooses among the selected paths. Return the path."""
        path = self.disk.flip_random_bit(self._random, selects)
        self.note("bit flip", path or "no flushed file")
        return path

    def _replace_disk(self, event: str, snapshot: DiskSnapshot | None, reboots: bool) -> None:
        assert not self._processes, f"{self.host} still runs {self.processes[0].name}"
        self.note(event)
        self.disk.restore(snapshot, reboots=reboots)

    def _end(self, processes: list[SimulatedProcess], *, power_loss: bool) -> None:
        silent = power_loss and self._random.random() < 0.5
        on_ends = [self._processes.pop(process) for process in processes]
        for process in processes:
            process.owner.die()
            self._network.process_gone(process.owner, silent=silent)
            process.disk.release()
        if power_loss:
            self.disk.power_loss()
        for process, on_end in zip(processes, on_ends, strict=True):
            on_end(power_loss)
            if not process.ended.done():
                process.ended.set_result(None)


class SimulatedMachines:
    """All machines of one simulation, by host name."""

    def __init__(
        self, loop: SimulatedLoop, random: Random, *, trace: Trace | None = None, conditions: Conditions | None = None
    ) -> None:
        self.trace = trace or Trace()
        self.network = SimulatedNetwork(loop, branch(random, "network"), conditions=conditions, trace=self.trace)
        self._loop = loop
        self._random = random
        self._machines: dict[str, SimulatedMachine] = {}

    def add(
        self,
        host: str,
        *,
        rate: float = 1.0,
        wall_offset_ms: int = 0,
        monotonic_start_s: float | None = None,
        slowness: Slowness | None = None,
    ) -> SimulatedMachine:
        """Add a machine whose clocks advance by `rate` seconds per simulated second.

        Its wall clock starts `wall_offset_ms` after the default start time.
        """
        assert host not in self._machines, f"there is a machine {host} already"
        clock = SimulatedClock(
            self._loop, wall_start_ms=WALL_START_MS + wall_offset_ms, rate=rate, monotonic_start_s=monotonic_start_s
        )
        self._machines[host] = machine = SimulatedMachine(
            host,
            self._loop,
            branch(self._random, f"machine {host}"),
            clock=clock,
            network=self.network,
            trace=self.trace,
            slowness=slowness or Slowness(),
        )
        return machine

    def __getitem__(self, host: str) -> SimulatedMachine:
        return self._machines[host]

    def __iter__(self) -> Iterator[SimulatedMachine]:
        return iter(self._machines.values())
