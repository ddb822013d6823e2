"""Defines the faults of a simulated run, and draws them from a seed.

A run does not contain every kind. A seed first draws the kinds that are enabled, then faults of these kinds. A run with
all kinds at once would hide bugs that need many faults of one kind, or none of another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

BROKER_HOST = "broker"


class FaultKind(StrEnum):
    """The kinds of faults. The comments explain `host`, `other` and `amount` of a fault."""

    KILL = "kill"  # the process ends, the page cache survives
    POWER_LOSS = "power loss"  # all unflushed data may be lost
    CRASH_IN_WRITE = "crash in a write"  # at the amount-th disk change from now, with or without power loss
    CRASH_IN_START = "crash in the next start"  # now, and again at the amount-th disk change of the next start
    STOP = "stop"  # the broker stops cleanly
    PAUSE = "pause"  # for amount seconds, no code of the broker's process runs
    CUT = "cut"  # host's connections break
    BLACK_HOLE = "black hole"  # for amount seconds, no bytes pass between host and other (empty: all others)
    ONE_WAY = "one-way block"  # for amount seconds, no bytes pass from host to other (empty: all others)
    REFUSE = "refuse"  # for amount seconds, host refuses connections
    DISK_FULL = "disk full"  # for amount seconds, writes fail
    WRITE_ERROR = "write error"  # for amount seconds, a write may fail
    FLUSH_ERROR = "flush error"  # for amount seconds, a flush may fail
    CLOCK_JUMP = "clock jump"  # host's wall clock moves by amount seconds
    BIT_FLIP = "bit flip"  # a flushed bit of some file on host's disk changes
    DISK_LOST = "disk lost"  # host loses its power and its disk
    DISK_ROLLED_BACK = "disk rolled back"  # after amount seconds host loses its power; its disk is as it is now


DAMAGE = frozenset({FaultKind.BIT_FLIP, FaultKind.DISK_LOST, FaultKind.DISK_ROLLED_BACK})
"""Kinds that destroy flushed data. Only copies on other machines compensate for them."""

LASTING = frozenset(
    {
        FaultKind.PAUSE,
        FaultKind.BLACK_HOLE,
        FaultKind.ONE_WAY,
        FaultKind.REFUSE,
        FaultKind.DISK_FULL,
        FaultKind.WRITE_ERROR,
        FaultKind.FLUSH_ERROR,
        FaultKind.DISK_ROLLED_BACK,
    }
)
"""Kinds that end `amount` seconds after they began."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault."""

    at_s: float
    kind: FaultKind
    amount: float = 0.0
    host: str = BROKER_HOST
    other: str | None = None
    power_loss: bool = False

    def __str__(self) -> str:
        hosts = self.host if self.other is None else f"{self.host} > {self.other}"
        power = " with power loss" if self.power_loss else ""
        return f"{self.at_s:.3f} s: {self.kind.value}, {hosts} {self.amount:g}{power}"


@dataclass(frozen=True, slots=True)
class FaultHosts:
    """The hosts that faults can affect."""

    brokers: tuple[str, ...]
    clients: tuple[str, ...]
    clocks: tuple[str, ...]
    """Machines whose wall clock jumps."""


_SHARES = {
    FaultKind.KILL: 3,
    FaultKind.POWER_LOSS: 4,
    FaultKind.CRASH_IN_WRITE: 6,
    FaultKind.CRASH_IN_START: 3,
    FaultKind.STOP: 1,
    FaultKind.PAUSE: 2,
    FaultKind.CUT: 4,
    FaultKind.BLACK_HOLE: 2,
    FaultKind.ONE_WAY: 2,
    FaultKind.REFUSE: 1,
    FaultKind.DISK_FULL: 1,
    FaultKind.WRITE_ERROR: 1,
    FaultKind.FLUSH_ERROR: 1,
    FaultKind.CLOCK_JUMP: 1,
    FaultKind.BIT_FLIP: 2,
    FaultKind.DISK_LOST: 1,
    FaultKind.DISK_ROLLED_BACK: 1,
}
"""The relative frequency of each enabled kind."""


def draw_kinds(random: Random, kinds: Iterable[FaultKind]) -> tuple[FaultKind, ...]:
    """Draw the kinds of faults that are enabled in a run, each with probability 1/2."""
    return tuple(kind for kind in kinds if random.random() < 0.5)


def draw_faults(
    random: Random, kinds: Sequence[FaultKind], duration_s: float, hosts: FaultHosts, *, count_max: int = 7
) -> tuple[Fault, ...]:
    """Draw faults of the enabled kinds, ordered by time."""
    if not kinds:
        return ()
    drawn = random.choices(kinds, [_SHARES[kind] for kind in kinds], k=random.randint(0, count_max))
    faults = [draw_fault(random, kind, random.uniform(0, duration_s), hosts) for kind in drawn]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def draw_fault(random: Random, kind: FaultKind, at_s: float, hosts: FaultHosts) -> Fault:
    """Draw one fault of a kind at a given time."""
    broker = random.choice(hosts.brokers)
    match kind:
        case FaultKind.CRASH_IN_WRITE:
            return Fault(at_s, kind, random.randint(1, 60), broker, power_loss=random.random() < 2 / 3)
        case FaultKind.CRASH_IN_START:
            return Fault(at_s, kind, random.randint(1, 30), broker, power_loss=random.random() < 2 / 3)
        case FaultKind.CUT:
            return Fault(at_s, kind, 0, *_draw_hosts(random, hosts))
        case FaultKind.BLACK_HOLE | FaultKind.ONE_WAY:
            return Fault(at_s, kind, random.choice((0.5, 5.0, 25.0)), *_draw_hosts(random, hosts))
        case FaultKind.PAUSE:
            return Fault(at_s, kind, random.choice((0.1, 2.0, 10.0, 30.0)), broker)
        case FaultKind.CLOCK_JUMP:
            return Fault(at_s, kind, random.choice((-86_400, -3600, -5, 5, 1800)), random.choice(hosts.clocks))
        case kind if kind in LASTING:
            return Fault(at_s, kind, random.uniform(0.2, 4.0), broker)
        case _:
            return Fault(at_s, kind, 0, broker)


def _draw_hosts(random: Random, hosts: FaultHosts) -> tuple[str, str | None]:
    """Draw a host and, for some faults, the only other host from which it is separated."""
    host = random.choice((*hosts.brokers, *hosts.clients))
    peers = hosts.brokers if host in hosts.clients else (*hosts.brokers, *hosts.clients)
    others = [other for other in peers if other != host]
    return host, random.choice(others) if random.random() < 0.3 else None
