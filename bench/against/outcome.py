"""Presents the outcome of a comparison as text, as JSON, and as an exit code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.against.verdicts import Comparison, Verdict, summary, table
from bench.report import machine
from bench.rounds import Failure

EXIT_REGRESSION = 1
EXIT_INCOMPLETE = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    versions: Mapping[str, str]
    """The version of each side, by the side's name."""
    rounds: int
    load_average: float
    """The load average before the run began."""
    comparisons: Sequence[Comparison]
    failures: Sequence[Failure]
    is_interrupted: bool = False

    @property
    def exit_code(self) -> int:
        verdicts = {one.verdict for one in self.comparisons}
        if Verdict.REGRESSION in verdicts:
            return EXIT_REGRESSION
        return EXIT_INCOMPLETE if self.failures or Verdict.NOT_MEASURED in verdicts else 0

    def text(self) -> str:
        """Returns the conditions, a table with a row for each measure, and a summary."""
        lines = [
            *(f"{name}: {version}" for name, version in self.versions.items()),
            f"{machine()}; load average {self.load_average:.1f} before the run began",
            f"alternating rounds: {self.rounds}{', interrupted before the end' if self.is_interrupted else ''}",
            *(f"failed, also when tried again: {one.workload}, {one.peer}: {one.reason}" for one in self.failures),
        ]
        return "\n".join(
            ["", *(f"- {line}" for line in lines), "", *table(self.comparisons), "", summary(self.comparisons)]
        )

    def write_json(self, path: Path) -> None:
        found = {
            **self.versions,
            "machine": machine(),
            "load_average": self.load_average,
            "rounds": self.rounds,
            "is_interrupted": self.is_interrupted,
            "failures": [f"{one.workload}, {one.peer}: {one.reason}" for one in self.failures],
            "measures": [one.as_json() for one in self.comparisons],
        }
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
