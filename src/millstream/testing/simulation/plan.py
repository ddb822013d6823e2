"""What one seed means: a workload and the faults that will meet it, drawn once, before anything runs."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal

from millstream.testing.simulated.entropy import branch

Flush = Literal["always", "interval", "os"]

BROKER_HOST = "broker"


class FaultKind(StrEnum):
    """What goes wrong; `amount` and `target` of a fault mean what stands behind each kind."""

    KILL = "kill"  # the process ends, the page cache stays
    POWER_LOSS = "power loss"  # everything that was not flushed is in doubt
    CRASH_IN_WRITE = "crash in a write"  # at the amount-th change of the disk from here on; power loss if target is set
    CRASH_IN_START = "crash in the next start"  # now, and again at the amount-th change of the disk of the next start
    STOP = "stop"  # the broker is asked to end, and does so cleanly
    CUT = "cut"  # target's connections break
    BLACK_HOLE = "black hole"  # for amount seconds, target's bytes go nowhere
    REFUSE = "refuse"  # for amount seconds, nobody can connect to the broker
    DISK_FULL = "disk full"  # for amount seconds, nothing can be written
    WRITE_ERROR = "write error"  # for amount seconds, a write may fail
    FLUSH_ERROR = "flush error"  # for amount seconds, a flush may fail
    CLOCK_JUMP = "clock jump"  # the wall clock moves by amount seconds


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: FaultKind
    amount: float = 0.0
    target: str = ""

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.kind.value} {self.target} {self.amount:g}".rstrip()


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    retention_bytes: int


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """A producer writes `batches` batches to partitions of its choice; pauses between them, or sends all it can."""

    name: str
    batches: int
    records_max: int
    value_bytes_max: int
    pause_s: float
    compression: str
    lanes: int
    """So many batches are asked for at a time; the SDK keeps those of one partition in order."""
    pipelined: bool
    """Sends several batches of a partition at a time, numbered by itself, as librdkafka and the Java client do."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    name: str
    max_wait_ms: int
    max_bytes: int
    restarts_chance: float
    """How often the reader begins anew at the log's start, to read what it has seen before."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A member of the group; when one is gone, another comes under the same name."""

    name: str
    commit_chance: float
    """How often what was read is committed, after each batch."""
    crash_chance: float
    """How often the member is gone with a batch, without a word."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A compacted topic beside the others: how often it is written to, and over how many keys; none without writes."""

    writes: int
    keys: int
    pause_s: float
    compression: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class OncePlan:
    """A topic that is written to under message ids: how often, and how often that is another try; 0: not at all."""

    writes: int
    pause_s: float
    retry_chance: float


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    flush: Flush
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    readers: tuple[ReaderPlan, ...]
    members: tuple[MemberPlan, ...]
    """Of a group that reads the topics that keep everything; only where acknowledged means durable."""
    table: TablePlan
    once: OncePlan
    faults: tuple[Fault, ...]
    churned_topics: int
    """So many topics are created, and most of them deleted, beside all else."""
    data_directories: int
    segment_bytes: int
    latency_s: float
    jitter_s: float
    pieces_chance: float
    slow_disk_s: float
    restart_delay_s: float
    duration_s: float

    def lines(self) -> list[str]:
        """The plan in words."""
        partitions = ", ".join(f"{topic.name} ({topic.partitions})" for topic in self.topics)
        producers = ", ".join("pipelined" if one.pipelined else one.compression for one in self.producers)
        return [
            f"flush {self.flush}, segments of {self.segment_bytes} bytes, topics {partitions}",
            f"{len(self.producers)} producers ({producers}), {len(self.readers)} readers, "
            f"{len(self.members)} members of a group, {self.table.writes} writes to a table, "
            f"{self.once.writes} under ids, {self.duration_s:.1f} s",
            *(f"  {fault}" for fault in self.faults),
        ]


def draw_plan(seed: int, *, flush: Flush | None = None) -> Plan:
    """The plan of a seed; `flush` overrides the policy that the seed would have chosen."""
    root = Random(f"millstream/{seed}")
    random = branch(root, "workload")
    duration_s = random.uniform(4, 20)
    producers = tuple(_draw_producer(random, number, duration_s) for number in range(random.randint(1, 4)))
    readers = tuple(_draw_reader(random, number) for number in range(random.randint(1, 3)))
    hosts = [*(one.name for one in producers), *(one.name for one in readers), BROKER_HOST]
    drawn_flush = random.choice(_FLUSH_CHOICES)
    return Plan(
        seed=seed,
        flush=flush or drawn_flush,
        topics=tuple(_draw_topic(random, number) for number in range(random.randint(1, 2))),
        producers=producers,
        readers=readers,
        faults=_draw_faults(branch(root, "faults"), duration_s, hosts),
        table=_draw_table(branch(root, "table"), duration_s),
        members=_draw_members(branch(root, "members")) if (flush or drawn_flush) == "always" else (),
        once=_draw_once(branch(root, "once"), duration_s),
        churned_topics=random.choice((0, 0, 10)),
        data_directories=random.choice((1, 1, 2)),
        segment_bytes=random.choice((16 * 1024, 16 * 1024, 64 * 1024, 2**20)),
        latency_s=random.choice((0.0001, 0.001, 0.02)),
        jitter_s=random.choice((0.0, 0.001, 0.05)),
        pieces_chance=random.choice((0.0, 0.05, 0.5)),
        slow_disk_s=random.choice((0.0005, 0.005, 0.05)),
        restart_delay_s=random.uniform(0.05, 3.0),
        duration_s=duration_s,
    )


_FLUSH_CHOICES: tuple[Flush, ...] = ("always", "always", "always", "interval", "os")


def _draw_topic(random: Random, number: int) -> TopicPlan:
    return TopicPlan(f"topic-{number}", random.randint(1, 4), random.choice((-1, -1, -1, 40_000)))


def _draw_producer(random: Random, number: int, duration_s: float) -> ProducerPlan:
    batches = random.randint(5, 40)
    return ProducerPlan(
        name=f"producer-{number}",
        batches=batches,
        records_max=random.choice((1, 5, 30)),
        value_bytes_max=random.choice((10, 200, 3000)),
        pause_s=random.choice((0.0, duration_s / batches, duration_s / batches)),
        compression=random.choice(("none", "none", "none", "gzip", "lz4", "snappy", "zstd")),
        lanes=random.choice((1, 2, 4)),
        pipelined=random.random() < 0.3,
    )


def _draw_reader(random: Random, number: int) -> ReaderPlan:
    return ReaderPlan(
        name=f"reader-{number}",
        max_wait_ms=random.choice((0, 100, 2000)),
        max_bytes=random.choice((100, 5_000, 2**20)),
        restarts_chance=random.choice((0.0, 0.05)),
    )


def _draw_members(random: Random) -> tuple[MemberPlan, ...]:
    return tuple(
        MemberPlan(f"member-{number}", random.choice((0.1, 0.5, 1.0)), random.choice((0.0, 0.02, 0.1)))
        for number in range(random.choice((0, 0, 1, 3)))
    )


def _draw_table(random: Random, duration_s: float) -> TablePlan:
    writes = random.choice((0, 0, 60, 150))
    return TablePlan(
        writes=writes,
        keys=random.choice((1, 5, 20)),
        pause_s=duration_s / max(1, writes),
        compression=random.choice(("none", "none", "gzip", "zstd")),
        max_bytes=random.choice((100, 5_000, 2**20)),
    )


def _draw_once(random: Random, duration_s: float) -> OncePlan:
    writes = random.choice((0, 0, 30, 80))
    return OncePlan(writes, duration_s / max(1, writes), random.choice((0.1, 0.5)))


_SHARES = {
    FaultKind.KILL: 3,
    FaultKind.POWER_LOSS: 4,
    FaultKind.CRASH_IN_WRITE: 6,
    FaultKind.CRASH_IN_START: 3,
    FaultKind.STOP: 1,
    FaultKind.CUT: 4,
    FaultKind.BLACK_HOLE: 2,
    FaultKind.REFUSE: 1,
    FaultKind.DISK_FULL: 1,
    FaultKind.WRITE_ERROR: 1,
    FaultKind.FLUSH_ERROR: 1,
    FaultKind.CLOCK_JUMP: 1,
}


def _draw_faults(random: Random, duration_s: float, hosts: list[str]) -> tuple[Fault, ...]:
    kinds = random.choices(list(_SHARES), list(_SHARES.values()), k=random.randint(0, 7))
    faults = [_draw_fault(random, kind, random.uniform(0, duration_s), hosts) for kind in kinds]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _draw_fault(random: Random, kind: FaultKind, at_s: float, hosts: list[str]) -> Fault:
    if kind is FaultKind.CRASH_IN_WRITE:
        return Fault(at_s, kind, random.randint(1, 60), random.choice(("power", "power", "")))
    if kind is FaultKind.CRASH_IN_START:
        return Fault(at_s, kind, random.randint(1, 30), random.choice(("power", "power", "")))
    if kind is FaultKind.CUT:
        return Fault(at_s, kind, target=random.choice(hosts))
    if kind is FaultKind.BLACK_HOLE:
        return Fault(at_s, kind, random.choice((0.5, 5.0, 25.0)), random.choice(hosts))
    if kind is FaultKind.CLOCK_JUMP:
        return Fault(at_s, kind, random.choice((-86_400, -3600, -5, 5, 1800)))
    if kind in (FaultKind.REFUSE, FaultKind.DISK_FULL, FaultKind.WRITE_ERROR, FaultKind.FLUSH_ERROR):
        return Fault(at_s, kind, random.uniform(0.2, 4.0))
    return Fault(at_s, kind)
