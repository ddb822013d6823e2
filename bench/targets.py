"""Defines targets relative to Kafka's figures in the same run, and compares each measured figure with its target."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bench.driver import Sample

LEAST, MOST = "≥", "≤"
SPEEDS = ("M messages/s", "GB/s", "messages/s")
COSTS = ("CPU-s per million", "CPU-s per GB", "CPU ms per 1,000")
LATENCIES = ("p50 µs", "p99 µs", "mean µs")
BUSY = 0.6
"""Share of CPU time below which a broker does not limit the rate."""

TARGETS: tuple[tuple[str, tuple[str, ...], str, float], ...] = (
    ("produce 100 B*", SPEEDS, LEAST, 1.15),
    ("produce 100 B*", COSTS, MOST, 0.5),
    ("produce 1 KB*", SPEEDS, LEAST, 1.3),
    ("produce 1 KB*", COSTS, MOST, 0.7),
    ("consume *", SPEEDS, LEAST, 1.15),
    ("consume *", COSTS, MOST, 0.4),
    ("producer and group of 3, 1,000/s,*", ("p50 µs",), MOST, 0.8),
    ("producer and group of 3, 1,000/s,*", ("p99 µs",), MOST, 1.0),
    ("producer and group of 3, 1,000/s,*", COSTS, MOST, 0.5),
    ("ack at*", ("p50 µs",), MOST, 0.7),
    ("ack at*", ("p99 µs",), MOST, 1.0),
    ("ack at*", COSTS, MOST, 0.5),
    ("flush before ack, 64 producers, 1 partition,*", SPEEDS, LEAST, 10),
    ("flush before ack, 64 producers, *partitions*", SPEEDS, LEAST, 5),
    ("flush before ack, full*", SPEEDS, LEAST, 1.2),
    ("flush before ack, full*", COSTS, MOST, 0.6),
    ("100 topics*", SPEEDS, LEAST, 1),
    ("100 topics*", COSTS, MOST, 0.6),
    ("start", ("s to first acknowledgement",), MOST, 0.15),
    ("idle memory", ("MB",), MOST, 0.15),
    ("memory after*", ("MB",), MOST, 0.15),
)
"""Workload pattern, figures, direction and limit."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one workload on both brokers; Kafka's values are empty if it was not measured."""

    workload: str
    metric: str
    kafka: Sequence[float]
    millstream: Sequence[float]
    kafka_busy: float | None
    millstream_busy: float | None
    """CPU seconds of the broker per second of the run (median)."""

    @property
    def ratio(self) -> float | None:
        kafka = statistics.median(self.kafka) if self.kafka else 0.0
        return statistics.median(self.millstream) / kafka if kafka and self.millstream else None

    @property
    def ratios(self) -> list[float]:
        """Millstream's figure divided by Kafka's, round by round: both were measured under similar conditions."""
        return [millstream / kafka for millstream, kafka in zip(self.millstream, self.kafka, strict=False) if kafka]

    @property
    def target(self) -> tuple[str, float] | None:
        for pattern, metrics, way, limit in TARGETS:
            if self.metric in metrics and fnmatchcase(self.workload, pattern):
                return way, limit
        return None

    @property
    def is_met(self) -> bool | None:
        """True if the target is met; None if there is no target or nothing to compare with."""
        ratio, target = self.ratio, self.target
        if ratio is None or target is None:
            return None
        way, limit = target
        return ratio >= limit if way == LEAST else ratio <= limit

    @property
    def is_limited_by_the_client(self) -> bool:
        """True if both brokers were mostly idle, so that their rates are those of the load tool."""
        return (
            self.metric in SPEEDS
            and self.kafka_busy is not None
            and self.millstream_busy is not None
            and max(self.kafka_busy, self.millstream_busy) < BUSY
        )


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Returns one row for each figure of each workload, in the order in which they first occur."""
    found = []
    for workload, metric in dict.fromkeys((sample.workload, metric) for sample in samples for metric in sample.metrics):
        kafka = _chosen(samples, "Kafka", workload, metric)
        millstream = _chosen(samples, "Millstream", workload, metric)
        if kafka or millstream:
            kafkas, millstreams = ([sample.metrics[metric] for sample in each] for each in (kafka, millstream))
            found.append(Row(workload, metric, kafkas, millstreams, _busy(kafka), _busy(millstream)))
    return found


def _chosen(samples: Sequence[Sample], peer: str, workload: str, metric: str) -> list[Sample]:
    return [one for one in samples if one.peer == peer and one.workload == workload and metric in one.metrics]


def _busy(samples: Sequence[Sample]) -> float | None:
    shares = [
        one.usage.cpu_s / one.load["seconds"] for one in samples if one.usage and one.load and "seconds" in one.load
    ]
    return statistics.median(shares) if shares else None
