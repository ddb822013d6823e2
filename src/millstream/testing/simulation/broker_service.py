"""Keeps a broker running on a simulated machine, as an init system does, and applies the faults of its process."""

import asyncio
from collections import Counter
from collections.abc import Callable

from millstream.catalog.memory import MemoryCatalog
from millstream.node.settings import BrokerSettings
from millstream.testing.simulated.disk import DiskSnapshot
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachine
from millstream.testing.simulated.process import SimulatedProcess
from millstream.testing.simulation.broker_process import BrokerProcess


class BrokerService:
    """One broker on one machine. When its process has ended, the next one starts after `restart_delay_s`."""

    def __init__(
        self,
        machine: SimulatedMachine,
        loop: SimulatedLoop,
        catalog: MemoryCatalog,
        settings: BrokerSettings,
        *,
        restart_delay_s: float,
        on_end: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.machine = machine
        self._loop = loop
        self._catalog = catalog
        self._settings = settings
        self._restart_delay_s = restart_delay_s
        self._on_end = on_end
        self._broker: BrokerProcess | None = None
        self._starts = 0
        self._is_over = False
        self._is_starting = False
        self._crash_in_start: tuple[int, bool] | None = None
        self._began_on_bad_disk = False
        self._pauses: Counter[SimulatedProcess] = Counter()

    async def run(self) -> None:
        """Run one broker process after the other, until `end`."""
        while not self._is_over:
            self._starts += 1
            self._broker = broker = BrokerProcess(
                self.machine, self._loop, self._catalog, self._settings, self._starts, self._on_end
            )
            self._began_on_bad_disk = self._disk_refuses()
            if self._crash_in_start is not None:
                changes, power_loss = self._crash_in_start
                self._crash_in_start = None
                self.crash_in_write(changes, power_loss=power_loss)
            self._is_starting = True
            started = await broker.start()
            self._is_starting = False
            if started:
                await broker.process.ended
            self._broker = None
            await asyncio.sleep(self._restart_delay_s)

    async def end(self) -> None:
        """Stop the broker permanently."""
        self._is_over = True
        await self.stop()

    async def stop(self) -> None:
        """Stop the broker cleanly, and wait for its end. The next one starts after the delay."""
        if self._broker is not None:
            await self._broker.stop()

    # Faults of the process

    def crash(self, *, power_loss: bool) -> None:
        """Kill the process, or cut the power of its machine. Do nothing if no process runs."""
        process = self._process()
        if process is not None and power_loss:
            self.machine.power_loss()
        elif process is not None:
            self.machine.kill(process)

    def crash_in_write(self, changes: int, *, power_loss: bool) -> None:
        """Crash at the given number of disk changes from now."""
        process = self._process()
        if process is not None:
            self.machine.crash_in_write(process, changes, power_loss=power_loss)

    def crash_in_start(self, changes: int, *, power_loss: bool) -> None:
        """Crash now, and once more at the given number of disk changes in the next start."""
        self._crash_in_start = (changes, power_loss)
        self.crash(power_loss=power_loss)

    def pause(self) -> Callable[[], None]:
        """Pause the process, and return a function that ends this pause.

        The function resumes the process if it is alive and no other pause is active.
        """
        process = self._process()
        if process is not None:
            process.pause()
            self._pauses[process] += 1

        def resume() -> None:
            if process is None:
                return
            self._pauses[process] -= 1
            if process.alive and not self._pauses[process]:
                process.resume()

        return resume

    # Faults of the disk

    def lose_disk(self) -> None:
        """Lose the power and the disk. The next process starts on an empty disk."""
        self.machine.power_loss()
        self.machine.lose_disk()

    def roll_back_disk(self, snapshot: DiskSnapshot) -> None:
        """Lose the power. The next process starts on an earlier copy of the disk."""
        self.machine.power_loss()
        self.machine.roll_back_disk(snapshot)

    def disk_turned_bad(self) -> None:
        """Record that the disk fails while the broker starts.

        Such a broker must be restarted after the disk is repaired, because only a start repairs its logs.
        """
        self._began_on_bad_disk |= self._is_starting and self._disk_refuses()

    async def restart_after_bad_start(self) -> None:
        """Restart a broker that started on a failing disk, as an operator does who reads its log."""
        if self._began_on_bad_disk:
            await self.stop()

    def _process(self) -> SimulatedProcess | None:
        """The broker's process, if it is alive."""
        return self._broker.process if self._broker is not None and self._broker.process.alive else None

    def _disk_refuses(self) -> bool:
        disk = self.machine.disk
        return disk.is_full or disk.write_error_chance > 0 or disk.flush_error_chance > 0
