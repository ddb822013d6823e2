"""Turns samples into the tables of RESULTS.md, which it rewrites between its two markers."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.workloads import Sample

BEGIN = "<!-- peers:begin (written by bench/run.py) -->"
END = "<!-- peers:end -->"

TARGETS: dict[tuple[str, str], float] = {
    ("produce 100 B", "CPU-s per million"): 0.6,
    ("consume 100 B", "CPU-s per million"): 0.5,
    ("idle memory", "MB"): 0.15,
    ("start to ready", "s"): 0.2,
}
"""The most that Penstock may need, as a share of what Kafka needs."""


def comparison(samples: Sequence[Sample]) -> list[str]:
    """One row per figure: the median and spread of both brokers, their ratio, and the target where there is one."""
    lines = ["| workload | figure | Kafka | Penstock | Penstock / Kafka | target |", "|---|---|---|---|---|---|"]
    for workload, metric in _rows(samples):
        kafka = _values(samples, "Kafka", workload, metric)
        penstock = _values(samples, "Penstock", workload, metric)
        if not kafka or not penstock:
            continue
        ratio = statistics.median(penstock) / statistics.median(kafka)
        target = TARGETS.get((workload, metric))
        verdict = "" if target is None else f"≤ {target}: {'met' if ratio <= target else '**missed**'}"
        lines.append(f"| {workload} | {metric} | {_spread(kafka)} | {_spread(penstock)} | {ratio:.2f} | {verdict} |")
    return lines


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


def rewrite(path: Path, lines: Iterable[str]) -> None:
    """Replace what stands between the markers; the rest of the page is written by people."""
    text = path.read_text() if path.exists() else f"# Measured\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")


def _rows(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((sample.workload, metric) for sample in samples for metric in sample.metrics))


def _values(samples: Sequence[Sample], peer: str, workload: str, metric: str) -> list[float]:
    return [
        sample.metrics[metric]
        for sample in samples
        if sample.peer == peer and sample.workload == workload and metric in sample.metrics
    ]


def _spread(values: Sequence[float]) -> str:
    middle = _figure(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_figure(min(values))} to {_figure(max(values))})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
