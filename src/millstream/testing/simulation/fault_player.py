"""Applies planned faults to the machines, the network and the brokers of a simulation."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.machine import SimulatedMachines
from millstream.testing.simulated.network import Direction
from millstream.testing.simulation.broker_service import BrokerService
from millstream.testing.simulation.faults import LASTING, Fault, FaultKind
from millstream.testing.simulation.settling import SETTLING_S, within

_ERROR_CHANCE = 0.2


class FaultPlayer:
    """Applies a plan's faults at their times, and ends those that last."""

    def __init__(self, loop: SimulatedLoop, machines: SimulatedMachines, services: Iterable[BrokerService]) -> None:
        self._loop = loop
        self._machines = machines
        self._services = {service.machine.host: service for service in services}
        self._began_s = loop.time()
        self._at_once: Mapping[FaultKind, Callable[[Fault], object]] = {
            FaultKind.KILL: lambda fault: self._of(fault).crash(power_loss=False),
            FaultKind.POWER_LOSS: lambda fault: self._of(fault).crash(power_loss=True),
            FaultKind.CRASH_IN_WRITE: lambda fault: self._of(fault).crash_in_write(
                int(fault.amount), power_loss=fault.power_loss
            ),
            FaultKind.CRASH_IN_START: lambda fault: self._of(fault).crash_in_start(
                int(fault.amount), power_loss=fault.power_loss
            ),
            FaultKind.CUT: lambda fault: machines.network.cut(fault.host, fault.other),
            FaultKind.CLOCK_JUMP: lambda fault: machines[fault.host].clock.jump_ms(int(fault.amount * 1000)),
            FaultKind.BIT_FLIP: lambda fault: machines[fault.host].flip_bit(),
            FaultKind.DISK_LOST: lambda fault: self._of(fault).lose_disk(),
        }

    async def play(self, faults: Sequence[Fault], duration_s: float) -> None:
        """Apply all faults, and return `duration_s` after the creation of the player."""
        for fault in faults:
            await asyncio.sleep(max(0.0, self._began_s + fault.at_s - self._loop.time()))
            self._machines.trace.note(self._loop.time(), "fault", str(fault))
            await self._play(fault)
        await asyncio.sleep(max(0.0, self._began_s + duration_s - self._loop.time()))

    async def heal(self, faults: Sequence[Fault]) -> None:
        """Wait until all lasting faults have ended, and restart the brokers that need it."""
        await asyncio.sleep(max((fault.amount for fault in faults if fault.kind in LASTING), default=0.0))
        for service in self._services.values():
            service.machine.note("healed")
            await within(SETTLING_S, service.restart_after_bad_start(), "stopping")

    async def _play(self, fault: Fault) -> None:
        if fault.kind is FaultKind.STOP:
            await within(SETTLING_S, self._of(fault).stop(), "stopping")
        elif fault.kind in LASTING:
            end = self._begin(fault)
            self._loop.call_later(fault.amount, end)
        else:
            self._at_once[fault.kind](fault)

    def _begin(self, fault: Fault) -> Callable[[], None]:
        """Begin a lasting fault, and return the function that ends it."""
        network = self._machines.network
        match fault.kind:
            case FaultKind.BLACK_HOLE:
                network.block(fault.host, fault.other)
                return lambda: network.unblock(fault.host, fault.other)
            case FaultKind.ONE_WAY:
                network.block(fault.host, fault.other, Direction.OUTGOING)
                return lambda: network.unblock(fault.host, fault.other, Direction.OUTGOING)
            case FaultKind.REFUSE:
                network.refuse(fault.host)
                return lambda: network.accept(fault.host)
            case FaultKind.PAUSE:
                return self._of(fault).pause()
            case FaultKind.DISK_ROLLED_BACK:
                snapshot = self._machines[fault.host].disk.snapshot()
                return lambda: self._of(fault).roll_back_disk(snapshot)
            case _:
                return self._spoil_disk(fault)

    def _spoil_disk(self, fault: Fault) -> Callable[[], None]:
        disk = self._machines[fault.host].disk
        attribute, value = {
            FaultKind.DISK_FULL: ("is_full", True),
            FaultKind.WRITE_ERROR: ("write_error_chance", _ERROR_CHANCE),
            FaultKind.FLUSH_ERROR: ("flush_error_chance", _ERROR_CHANCE),
        }[fault.kind]
        setattr(disk, attribute, value)
        self._of(fault).disk_turned_bad()
        return lambda: setattr(disk, attribute, type(value)(0))

    def _of(self, fault: Fault) -> BrokerService:
        return self._services[fault.host]
