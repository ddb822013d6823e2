"""Defines the measures of a comparison, and reads each from the samples of its workload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.against.side import NEW, OLD
from bench.against.verdicts import Comparison
from bench.driver import MILLION, Sample
from bench.workloads import Workload, acknowledge_raw, raw_stream, singles

SMALL = Workload("raw", False, raw_stream(100, 1, many_readers=False), "100 B, raw")
LARGE = Workload("raw", False, raw_stream(1000, 1, many_readers=False), "1 KB, raw")
ACKNOWLEDGE = Workload("latency", False, acknowledge_raw, "ack at 1,000/s, raw")
FLUSH = Workload("flush", True, singles(1), "64 producers, flush before ack")
FLUSH_SAMPLE = "flush before ack, 64 producers, 1 partition, raw"


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    """The value that `--only` accepts."""
    title: str
    unit: str
    workload: Workload | None
    """The workload that produces the sample; None for samples of a start."""
    sample: str
    read: Callable[[Sample], float]
    higher_is_better: bool = False

    def compare(self, samples: Sequence[Sample]) -> Comparison:
        """Sorts the figures of both sides by round."""
        sides: dict[str, dict[int, float]] = {OLD: {}, NEW: {}}
        for sample in samples:
            if sample.workload == self.sample:
                sides[sample.peer][sample.round] = self.read(sample)
        return Comparison(self.name, self.title, self.unit, sides[OLD], sides[NEW], self.higher_is_better)


def _cpu_us(sample: Sample) -> float:
    assert sample.usage is not None
    assert sample.load is not None
    return sample.usage.cpu_s * MILLION / float(sample.load["messages"])


def _metric(name: str, sample: Sample, factor: float = 1.0) -> float:
    return sample.metrics[name] * factor


_CPU = "broker CPU per message"
MEASURES = (
    Measure("produce-100B", f"{_CPU}, raw produce of 100 B", "µs", SMALL, "produce 100 B, raw", _cpu_us),
    Measure("consume-100B", f"{_CPU}, raw consume of 100 B", "µs", SMALL, "consume 100 B, raw", _cpu_us),
    Measure("produce-1KB", f"{_CPU}, raw produce of 1 KB", "µs", LARGE, "produce 1 KB, raw", _cpu_us),
    Measure("consume-1KB", f"{_CPU}, raw consume of 1 KB", "µs", LARGE, "consume 1 KB, raw", _cpu_us),
    *(
        Measure(
            f"ack-{percentile}",
            f"acknowledgement at 1,000 messages/s, {percentile}",
            "µs",
            ACKNOWLEDGE,
            "ack at 1,000/s, raw",
            partial(_metric, f"{percentile} µs"),
        )
        for percentile in ("p50", "p99")
    ),
    Measure(
        "flush-throughput",
        "64 producers, flush on every write",
        "messages/s",
        FLUSH,
        FLUSH_SAMPLE,
        partial(_metric, "messages/s"),
        higher_is_better=True,
    ),
    Measure("flush-cpu", f"{_CPU}, 64 producers, flush on every write", "µs", FLUSH, FLUSH_SAMPLE, _cpu_us),
    Measure("ready", "process start to ready", "ms", None, "start", partial(_metric, "s to ready", factor=1000.0)),
    Measure("idle-memory", "resident memory after the start", "MB", None, "idle memory", partial(_metric, "MB")),
)
NAMES = tuple(measure.name for measure in MEASURES)
