"""Turns samples into the tables of RESULTS.md, which it rewrites between its two markers."""

import platform
import statistics
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bench.driver import Sample

BEGIN = "<!-- peers:begin (written by bench/run.py) -->"
END = "<!-- peers:end -->"

LEAST, MOST = "≥", "≤"
_SPEEDS = ("M messages/s", "GB/s", "messages/s")
_COSTS = ("CPU-s per million", "CPU-s per GB", "CPU ms per 1,000")

TARGETS: tuple[tuple[str, tuple[str, ...], str, float], ...] = (
    ("produce 100 B*", _SPEEDS, LEAST, 1.15),
    ("produce 100 B*", _COSTS, MOST, 0.5),
    ("produce 1 KB*", _SPEEDS, LEAST, 1.3),
    ("produce 1 KB*", _COSTS, MOST, 0.7),
    ("consume *", _SPEEDS, LEAST, 1.15),
    ("consume *", _COSTS, MOST, 0.4),
    ("producer and group*", ("p50 µs",), MOST, 0.8),
    ("producer and group*", ("p99 µs",), MOST, 1.0),
    ("producer and group*", _COSTS, MOST, 0.5),
    ("ack at*", ("p50 µs",), MOST, 0.7),
    ("ack at*", ("p99 µs",), MOST, 1.0),
    ("ack at*", _COSTS, MOST, 0.5),
    ("flush before ack, 64 producers, 1 partition,*", _SPEEDS, LEAST, 10),
    ("flush before ack, 64 producers, *partitions*", _SPEEDS, LEAST, 5),
    ("flush before ack, full*", _SPEEDS, LEAST, 1.2),
    ("flush before ack, full*", _COSTS, MOST, 0.6),
    ("100 topics*", _SPEEDS, LEAST, 1),
    ("100 topics*", _COSTS, MOST, 0.6),
    ("start", ("s to first acknowledgement",), MOST, 0.15),
    ("idle memory", ("MB",), MOST, 0.15),
    ("memory after*", ("MB",), MOST, 0.15),
)
"""What Penstock must reach, as a share of what Kafka has in the same run: workload, figures, and which way round."""


def comparison(samples: Sequence[Sample]) -> list[str]:
    """One row per figure: the median and spread of both brokers, their ratio, and the target where there is one.

    Without Kafka there is nothing to compare with; then the figures stand alone.
    """
    lines = ["| workload | figure | Kafka | Penstock | Penstock / Kafka | target |", "|---|---|---|---|---|---|"]
    for workload, metric in _rows(samples):
        kafka = _values(samples, "Kafka", workload, metric)
        penstock = _values(samples, "Penstock", workload, metric)
        if not kafka:
            lines.append(f"| {workload} | {metric} | | {spread(penstock)} | | |")
            continue
        ratio = statistics.median(penstock) / statistics.median(kafka)
        verdict = _verdict(workload, metric, ratio)
        lines.append(f"| {workload} | {metric} | {spread(kafka)} | {spread(penstock)} | {ratio:.2f} | {verdict} |")
    return lines


def _verdict(workload: str, metric: str, ratio: float) -> str:
    for pattern, metrics, way, target in TARGETS:
        if metric in metrics and fnmatchcase(workload, pattern):
            is_met = ratio >= target if way == LEAST else ratio <= target
            return f"{way} {target:g}: {'met' if is_met else '**missed**'}"
    return ""


def causes(samples: Sequence[Sample]) -> list[str]:
    """One row per round of the throughput workloads: where the broker's CPU went."""
    lines = [
        "| workload | broker | CPU user s | system s | minor faults | voluntary switches | involuntary | requests "
        "| load tool CPU s | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for sample in sorted(samples, key=lambda one: (one.workload, one.peer)):
        if sample.usage is None or sample.load is None:
            continue
        cost, load = sample.usage, sample.load
        load_cpu = load["load_user_s"] + load["load_system_s"]
        lines.append(
            f"| {sample.workload} | {sample.peer} | {cost.user_s:.2f} | {cost.system_s:.2f} | {cost.minor_faults:,} "
            f"| {cost.voluntary_switches:,} | {cost.involuntary_switches:,} | {load['requests']:,} "
            f"| {load_cpu:.2f} | {load['seconds']:.2f} |"
        )
    return lines


def machine() -> str:
    """What the bench ran on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    count = Path("/proc/cpuinfo").read_text().count("processor\t")
    return f"{count} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def rewrite(path: Path, lines: Iterable[str], begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between the markers; the rest of the page is written by people."""
    text = path.read_text() if path.exists() else f"# Measured\n\n{begin}\n{end}\n"
    if begin not in text or end not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}")


def _rows(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((sample.workload, metric) for sample in samples for metric in sample.metrics))


def _values(samples: Sequence[Sample], peer: str, workload: str, metric: str) -> list[float]:
    return [
        sample.metrics[metric]
        for sample in samples
        if sample.peer == peer and sample.workload == workload and metric in sample.metrics
    ]


def spread(values: Sequence[float]) -> str:
    """The median, and in brackets the smallest and the largest."""
    middle = _figure(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_figure(min(values))} to {_figure(max(values))})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
