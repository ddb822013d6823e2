"""Formats samples as the tables of RESULTS.md, and rewrites the page between its markers."""

import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.driver import Sample
from bench.targets import Row, rows

BEGIN = "<!-- peers:begin (written by bench/run.py) -->"
END = "<!-- peers:end -->"
FLOOR = "floor, "
LONG = 600
"""Maximum length of a command that is shown; a long list of topic names is cut."""


def verdicts(samples: Sequence[Sample]) -> list[str]:
    """Returns the number of targets met, and a row for each target."""
    judged = [row for row in rows(samples) if row.is_met is not None]
    if not judged:
        return ["Nothing here has a target, or there was nothing to compare with."]
    met = sum(row.is_met is True for row in judged)
    lines = [
        f"**{met} of {len(judged)} targets met.**",
        "",
        "| workload | figure | Kafka | Millstream | Millstream / Kafka | target | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in judged:
        assert row.target is not None
        way, limit = row.target
        lines.append(
            f"| {row.workload} | {row.metric} | {spread(row.kafka)} | {spread(row.millstream)} | {row.ratio:.2f} "
            f"| {way} {limit:g} | {_verdict(row)} |"
        )
    return lines


def _verdict(row: Row) -> str:
    if row.is_met:
        return "met"
    if row.is_limited_by_the_client:
        return f"**missed**; client's limit, brokers busy {row.kafka_busy:.0%} and {row.millstream_busy:.0%}"
    return "**missed**"


def comparison(samples: Sequence[Sample]) -> list[str]:
    """Returns one row per figure: median and spread of both brokers, and their ratio.

    Without Kafka, only Millstream's figures are shown.
    """
    lines = ["| workload | figure | Kafka | Millstream | Millstream / Kafka |", "|---|---|---|---|---|"]
    for row in rows(samples):
        kafka, millstream = (spread(each) if each else "" for each in (row.kafka, row.millstream))
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.workload} | {row.metric} | {kafka} | {millstream} | {ratio} |")
    return lines


def floor_table(samples: Sequence[Sample]) -> list[str]:
    """Returns the cost of the floor servers, and each broker's cost as a multiple; empty if no floor was measured."""
    metric = "CPU-s per GB"
    cells: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        if metric in sample.metrics:
            cells.setdefault((sample.workload, sample.peer), []).append(sample.metrics[metric])
    bare = sorted((key for key in cells if key[1].startswith(FLOOR)), reverse=True)
    if not bare:
        return []
    lines = [
        f"| {metric} | the bare loop | it costs | Kafka / floor | Millstream / floor |",
        "|---|---|---|---|---|",
    ]
    for workload, peer in bare:
        floor = statistics.median(cells[workload, peer])
        times = [
            f"{statistics.median(cells[workload, broker]) / floor:.2f}" if (workload, broker) in cells else ""
            for broker in ("Kafka", "Millstream")
        ]
        how = peer.removeprefix(FLOOR)
        lines.append(f"| {workload} | {how} | {spread(cells[workload, peer])} | {times[0]} | {times[1]} |")
    return lines


def causes(samples: Sequence[Sample]) -> list[str]:
    """Returns one row per round of each workload: the broker's CPU by kind, and the load tool's CPU."""
    lines = [
        "| workload | broker | CPU s | of it user | system | minor faults | major | voluntary switches | involuntary "
        "| load tool CPU s | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for sample in sorted(samples, key=lambda one: (one.workload, one.peer)):
        if sample.usage is None or sample.load is None:
            continue
        cost, load = sample.usage, sample.load
        load_cpu = load["load_user_s"] + load["load_system_s"]
        seconds = f"{load['seconds']:.2f}" if "seconds" in load else ""
        lines.append(
            f"| {sample.workload} | {sample.peer} | {cost.cpu_s:.3f} | {cost.user_s:.2f} | {cost.system_s:.2f} "
            f"| {cost.minor_faults:,} | {cost.major_faults:,} | {cost.voluntary_switches:,} "
            f"| {cost.involuntary_switches:,} | {load_cpu:.2f} | {seconds} |"
        )
    return lines


def commands(found: Mapping[str, str], shorten: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the command of each workload or broker, with long and machine-specific parts shortened."""
    lines = []
    for what, command in found.items():
        for long, short in shorten:
            command = command.replace(long, short)
        lines.append(f"- {what}: `{command if len(command) < LONG else command[:LONG] + ' …'}`")
    return lines


def machine() -> str:
    """Returns a description of the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    count = Path("/proc/cpuinfo").read_text().count("processor\t")
    return f"{count} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def rewrite(path: Path, lines: Iterable[str], begin: str = BEGIN, end: str = END) -> None:
    """Replaces the text between the markers. The rest of the page is maintained by hand."""
    text = path.read_text() if path.exists() else f"# Measured\n\n{begin}\n{end}\n"
    if begin not in text or end not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}")


def spread(values: Sequence[float]) -> str:
    """Returns the median, with the smallest and the largest value in brackets."""
    middle = figure(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({figure(min(values))} to {figure(max(values))})"


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
