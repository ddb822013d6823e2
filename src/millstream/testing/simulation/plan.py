"""Draws from a seed the workload of a run and its faults, before anything runs."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from millstream.testing.simulated.entropy import branch
from millstream.testing.simulation.faults import (
    BROKER_HOST,
    DAMAGE,
    Fault,
    FaultHosts,
    FaultKind,
    draw_faults,
    draw_kinds,
)

Flush = Literal["always", "interval", "os"]

CLIENTS_HOST = "clients"
"""The machine whose clocks all clients use. In the network each client is a separate host."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    retention_bytes: int


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """A producer writes `batches` batches to random partitions, with pauses or as fast as possible."""

    name: str
    batches: int
    records_max: int
    value_bytes_max: int
    pause_s: float
    compression: str
    lanes: int
    """The number of batches in flight; the SDK keeps those of one partition in order."""
    pipelined: bool
    """The producer numbers its batches and has several of a partition in flight; see `pipelined_producer`."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    name: str
    max_wait_ms: int
    max_bytes: int
    restarts_chance: float
    """The probability that the reader starts again at the log's start, to read again what it has read."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A member of the group. When it is gone, another joins under the same name."""

    name: str
    commit_chance: float
    """The probability of a commit after each batch."""
    crash_chance: float
    """The probability that the member crashes with a batch."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A compacted topic: the number of writes (0: no such topic) and of keys."""

    writes: int
    keys: int
    pause_s: float
    compression: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class OncePlan:
    """A topic that is written under message ids: the number of writes (0: no such topic), and the share of retries."""

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
    """Members of a group that reads the topics without retention. It runs only with flush policy `always`."""
    table: TablePlan
    once: OncePlan
    kinds: tuple[FaultKind, ...]
    """The enabled kinds of faults; `faults` contains some of them."""
    faults: tuple[Fault, ...]
    clock_rate: float
    """The seconds that the broker's clocks gain per second."""
    churned_topics: int
    """The number of topics that are created, and mostly deleted, during the run."""
    data_directories: int
    segment_bytes: int
    latency_s: float
    jitter_s: float
    pieces_chance: float
    slow_disk_s: float
    restart_delay_s: float
    duration_s: float

    def lines(self) -> list[str]:
        """Describe the plan as text."""
        partitions = ", ".join(f"{topic.name} ({topic.partitions})" for topic in self.topics)
        producers = ", ".join("pipelined" if one.pipelined else one.compression for one in self.producers)
        return [
            f"flush {self.flush}, segments of {self.segment_bytes} bytes, topics {partitions}",
            f"{len(self.producers)} producers ({producers}), {len(self.readers)} readers, "
            f"{len(self.members)} members of a group, {self.table.writes} writes to a table, "
            f"{self.once.writes} under ids, {self.duration_s:.1f} s",
            f"the broker's clocks run at {self.clock_rate:g}; enabled faults: {', '.join(self.kinds) or 'none'}",
            *(f"  {fault}" for fault in self.faults),
        ]


def draw_plan(seed: int, *, flush: Flush | None = None) -> Plan:
    """Draw the plan of a seed. `flush` overrides the policy that the seed would choose."""
    root = Random(f"millstream/{seed}")
    random = branch(root, "workload")
    duration_s = random.uniform(4, 20)
    producers = tuple(_draw_producer(random, number, duration_s) for number in range(random.randint(1, 4)))
    readers = tuple(_draw_reader(random, number) for number in range(random.randint(1, 3)))
    hosts = FaultHosts(
        brokers=(BROKER_HOST,),
        clients=(*(one.name for one in producers), *(one.name for one in readers)),
        clocks=(BROKER_HOST, CLIENTS_HOST),
    )
    kinds = draw_kinds(branch(root, "kinds"), [kind for kind in FaultKind if kind not in DAMAGE])
    drawn_flush = random.choice(_FLUSH_CHOICES)
    return Plan(
        seed=seed,
        flush=flush or drawn_flush,
        topics=tuple(_draw_topic(random, number) for number in range(random.randint(1, 2))),
        producers=producers,
        readers=readers,
        kinds=kinds,
        faults=draw_faults(branch(root, "faults"), kinds, duration_s, hosts),
        clock_rate=branch(root, "clock").choice((1.0, 1.0, 0.9, 1.1)),
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
