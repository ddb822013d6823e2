"""Writes one bench's section of the results page: its command, the machine, and its tables."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers import Millstream
from bench.report import machine, rewrite


class Section:
    """One section. Create it before the measurements: it records the load average."""

    def __init__(self, module: str, begin: str, end: str, arguments: Sequence[str] | None = None) -> None:
        """`begin` and `end` mark the section on the page. `arguments` default to those of the process."""
        self._command = " ".join(["python -m", module, *(sys.argv[1:] if arguments is None else arguments)])
        self._marks = begin, end
        self._load_average = os.getloadavg()[0]

    def publish(self, conditions: str, tables: Sequence[str], output: str | None) -> None:
        """Prints the section, and writes it to the page if `output` is set."""
        lines = [
            "",
            f"`{self._command}` on {time.strftime('%Y-%m-%d', time.gmtime())}: {conditions}. "
            f"{Millstream(Path()).version()}.",
            f"Machine: {machine()}; load average {self._load_average:.1f} before the run began.",
            "",
            *tables,
            "",
        ]
        print("\n".join(lines))
        if output:
            rewrite(Path(output), lines, *self._marks)
