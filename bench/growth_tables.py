"""Stores the samples of the growth bench and formats them as the tables of its section of RESULTS.md."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.plots import lines as line_plot
from bench.report import spread
from bench.restarting import LIMITS_S, Restart

RATIO_MAX = 1.1


@dataclass(frozen=True, slots=True)
class Cost:
    """Broker CPU per message for one kind of work in one round, with little or with much data."""

    case: str
    work: str
    amount: int
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Memory and CPU of an idle broker with little or with much data."""

    case: str
    amount: int
    resident_mb: float
    cpu_ms_per_minute: float


T = TypeVar("T", Cost, Standing)


@dataclass(frozen=True, slots=True)
class Found:
    """The measurements of the parts of one run, or of several."""

    costs: Sequence[Cost] = field(default_factory=list)
    standing: Sequence[Standing] = field(default_factory=list)
    restarts: Sequence[Restart] = field(default_factory=list)

    def __add__(self, other: "Found") -> "Found":
        return Found([*self.costs, *other.costs], [*self.standing, *other.standing], [*self.restarts, *other.restarts])


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run: its conditions and its measurements."""

    command: str
    version: str
    date: str
    load_before: float
    found: Found


def keep(path: Path, name: str, part: Part) -> None:
    """Stores a part's samples in the file, in place of its earlier ones."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, name: asdict(part)}, indent=1))


def kept_parts(path: Path) -> dict[str, Part]:
    """Returns the stored samples by part."""
    kept: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {name: Part(**{**part, "found": _found(part["found"])}) for name, part in kept.items()}


def _found(kept: Mapping[str, Any]) -> Found:
    return Found(
        [Cost(**one) for one in kept["costs"]],
        [Standing(**one) for one in kept["standing"]],
        [Restart(**one) for one in kept["restarts"]],
    )


def growth_plot(costs: Sequence[Cost]) -> str:
    """Plots a line for each kind of work: its cost relative to the cost with little data."""
    series: dict[str, list[tuple[float, float]]] = {}
    for case, work in dict.fromkeys((cost.case, cost.work) for cost in costs):
        by_amount: dict[int, list[float]] = {}
        for cost in costs:
            if (cost.case, cost.work) == (case, work):
                by_amount.setdefault(cost.amount, []).append(cost.cpu_us)
        medians = [(amount, statistics.median(by_amount[amount])) for amount in sorted(by_amount)]
        series[f"{case}, {work}"] = [(float(amount), median / medians[0][1]) for amount, median in medians]
    return line_plot("Broker CPU per message as something grows, as a share of its beginning", series, RATIO_MAX)


def growth_table(costs: Sequence[Cost]) -> list[str]:
    lines = [
        "| what grows | from, to | work | with little | with much | much / little | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, work in dict.fromkeys((cost.case, cost.work) for cost in costs):
        chosen = [cost for cost in costs if (cost.case, cost.work) == (case, work)]
        little, much, small, large = _sides(chosen, lambda cost: cost.cpu_us)
        # Ratios within a round: a machine that is slow for a while affects both sides.
        ratio = statistics.median(much_us / little_us for little_us, much_us in zip(small, large, strict=True))
        verdict = f"≤ {RATIO_MAX:g}: {_verdict(ratio <= RATIO_MAX)}"
        lines.append(
            f"| {case} | {little:,}, {much:,} | {work} | {spread(small)} | {spread(large)} | {ratio:.2f} | {verdict} |"
        )
    return lines


def standing_table(standing: Sequence[Standing]) -> list[str]:
    lines = [
        "| what grows | from, to | memory with little, MB | with much, MB | KB for each "
        "| CPU ms a minute at rest with little | with much |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(one.case for one in standing):
        chosen = [one for one in standing if one.case == case]
        little, much, small, large = _sides(chosen, lambda one: one.resident_mb)
        _, _, idle, busy = _sides(chosen, lambda one: one.cpu_ms_per_minute)
        each_kb = (statistics.median(large) - statistics.median(small)) * 1000 / (much - little)
        lines.append(
            f"| {case} | {little:,}, {much:,} | {spread(small)} | {spread(large)} | {each_kb:.3g} "
            f"| {spread(idle)} | {spread(busy)} |"
        )
    return lines


def restart_table(restarts: Sequence[Restart]) -> list[str]:
    lines = [
        "| case | start on | after it was | s to the first answer | s until all partitions acknowledged | target |",
        "|---|---|---|---|---|---|",
    ]
    for case, data_bytes, how in dict.fromkeys((one.case, one.data_bytes, one.how) for one in restarts):
        chosen = [one for one in restarts if (one.case, one.data_bytes, one.how) == (case, data_bytes, how)]
        acknowledged = [one.acknowledged_s for one in chosen]
        limit_s = LIMITS_S[how]
        verdict = f"< {limit_s:g} s: {_verdict(statistics.median(acknowledged) < limit_s)}"
        amount = f"{data_bytes / 1e9:g} GB" if data_bytes else "nothing"
        ready = spread([one.ready_s for one in chosen])
        lines.append(f"| {case} | {amount} | {how} | {ready} | {spread(acknowledged)} | {verdict} |")
    return lines


def samples_table(found: Found) -> list[str]:
    """Returns every round: the figures behind the tables above."""
    lines = ["| what | with | rounds |", "|---|---|---|"]
    for case, work, amount in dict.fromkeys((one.case, one.work, one.amount) for one in found.costs):
        rounds = [one.cpu_us for one in found.costs if (one.case, one.work, one.amount) == (case, work, amount)]
        lines.append(f"| {case}: {work}, µs | {amount:,} | {_rounds(rounds)} |")
    for case, data_bytes, how in dict.fromkeys((one.case, one.data_bytes, one.how) for one in found.restarts):
        chosen = [one for one in found.restarts if (one.case, one.data_bytes, one.how) == (case, data_bytes, how)]
        rounds = [one.acknowledged_s for one in chosen]
        lines.append(f"| {case}, {how}, s | {data_bytes / 1e9:g} GB | {_rounds(rounds)} |")
    return lines


def _sides(chosen: Sequence[T], figure: Callable[[T], float]) -> tuple[int, int, list[float], list[float]]:
    little, much = min(one.amount for one in chosen), max(one.amount for one in chosen)
    small = [figure(one) for one in chosen if one.amount == little]
    large = [figure(one) for one in chosen if one.amount == much]
    return little, much, small, large


def _rounds(figures: Sequence[float]) -> str:
    return ", ".join(f"{figure:.4g}" for figure in figures)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
