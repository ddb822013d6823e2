"""Compares the figures of two sides: ratios of paired rounds, their spread, and a verdict."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bench.report import figure

TOLERANCE = 0.05
ROUNDS_MIN = 5
"""With fewer rounds, chance alone often yields a spread that excludes 1.0, so no difference is certain."""


class Verdict(StrEnum):
    OK = "ok"
    BETTER = "better"
    REGRESSION = "regression"
    UNCLEAR = "unclear"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of one measure, by round."""

    name: str
    title: str
    unit: str
    old: Mapping[int, float]
    new: Mapping[int, float]
    higher_is_better: bool = False

    @property
    def ratios(self) -> list[float]:
        """New divided by old, for each round that both sides completed."""
        paired = sorted(self.old.keys() & self.new.keys())
        return [self.new[number] / self.old[number] for number in paired if self.old[number]]

    @property
    def spread(self) -> tuple[float, float]:
        """The interquartile range of the ratios."""
        return interquartile_range(self.ratios)

    @property
    def verdict(self) -> Verdict:
        return judge(self.ratios, higher_is_better=self.higher_is_better)

    def as_json(self) -> dict[str, Any]:
        ratios = self.ratios
        numbers = sorted(self.old.keys() | self.new.keys())
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "rounds": [
                {"round": number, "old": self.old.get(number), "new": self.new.get(number)} for number in numbers
            ],
            "ratios": ratios,
            "median_ratio": statistics.median(ratios) if ratios else None,
            "interquartile_range": self.spread if ratios else None,
            "verdict": self.verdict,
        }


def interquartile_range(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns the range that holds the middle half of the ratios; for a single ratio, that ratio twice."""
    if len(ratios) == 1:
        return ratios[0], ratios[0]
    first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return first, third


def judge(ratios: Sequence[float], *, higher_is_better: bool) -> Verdict:
    """Judges the median ratio. A difference of more than the tolerance counts if the spread excludes 1.0."""
    if not ratios:
        return Verdict.NOT_MEASURED
    median = statistics.median(ratios)
    if round(abs(median - 1), 9) <= TOLERANCE:
        return Verdict.OK
    low, high = interquartile_range(ratios)
    if len(ratios) < ROUNDS_MIN or low <= 1 <= high:
        return Verdict.UNCLEAR
    return Verdict.BETTER if (median > 1) is higher_is_better else Verdict.REGRESSION


def table(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a table with a row for each measure."""
    lines = [
        "| measure | figure | old, median | new, median | new / old, median | interquartile range | rounds | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        ratios = one.ratios
        ratio, spread = "", ""
        if ratios:
            low, high = one.spread
            ratio, spread = f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"
        verdict = f"**{one.verdict}**" if one.verdict is Verdict.REGRESSION else one.verdict
        lines.append(
            f"| {one.name} | {one.title}, {one.unit} | {_median(one.old)} | {_median(one.new)} | {ratio} | {spread} "
            f"| {len(ratios)} | {verdict} |"
        )
    return lines


def summary(comparisons: Sequence[Comparison]) -> str:
    """Returns the outcome in a few sentences."""
    named = {verdict: ", ".join(one.name for one in comparisons if one.verdict is verdict) for verdict in Verdict}
    sentences = ["No regression."]
    if named[Verdict.REGRESSION]:
        sentences = [f"Regression of more than {TOLERANCE:.0%}: {named[Verdict.REGRESSION]}."]
    elif named[Verdict.UNCLEAR] or named[Verdict.NOT_MEASURED]:
        sentences = ["No regression found."]
    if named[Verdict.UNCLEAR]:
        sentences.append(
            f"Unclear: {named[Verdict.UNCLEAR]}; use more rounds (at least {ROUNDS_MIN}), or an idle machine."
        )
    if named[Verdict.NOT_MEASURED]:
        sentences.append(f"Not measured: {named[Verdict.NOT_MEASURED]}.")
    return " ".join(sentences)


def _median(figures: Mapping[int, float]) -> str:
    return figure(statistics.median(figures.values())) if figures else ""
