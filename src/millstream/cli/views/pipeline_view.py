"""Shows the progress of a pipeline: live lines on a terminal, plain lines elsewhere, JSON for programs."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.cli.output import counted, print_json, print_note, printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from millstream.spark.pipelines.query_monitor import QueryState

_WINDOW_S = 5.0
"""Time window over which rows per second are measured."""


class PipelineView:
    def __init__(self, *, as_json: bool, every_s: float) -> None:
        self._as_json = as_json
        self._every_s = every_s
        self._is_live = sys.stderr.isatty() and not as_json
        self._live: Live | None = None
        self._rates: dict[str, _Rate] = {}
        self._shown_s: float | None = None
        self._ended: set[str] = set()

    def note(self, line: str) -> None:
        """Prints a line above the live lines. May be called from any thread."""
        if self._as_json:
            print_json({"note": line})
            sys.stdout.flush()
        elif self._live is not None:
            self._live.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        else:
            print_note(line)

    def show(self, states: "Sequence[QueryState]") -> None:
        """Shows the queries' states. Must be called repeatedly, and once more after all queries have ended."""
        now_s = time.monotonic()
        rates = [self._rates.setdefault(state.name, _Rate(now_s)).at(now_s, state.rows) for state in states]
        self._shown_s = now_s if self._shown_s is None else self._shown_s
        is_due = now_s - self._shown_s >= self._every_s
        if self._is_live and states:
            self._draw(states, rates)
        elif is_due:
            self._shown_s = now_s
            for state, rate in zip(states, rates, strict=True):
                if not state.is_over:
                    self._print_progress(state, rate)
        for state in states:
            if state.is_over and state.name not in self._ended:
                self._ended.add(state.name)
                self._print_end(state)

    def _print_progress(self, state: "QueryState", rate: float) -> None:
        if self._as_json:
            print_json({"query": state.name, "state": "running", **_figures(state), "rows_per_s": round(rate, 1)})
            sys.stdout.flush()
        else:
            self.note(f"{state.name}: {counted(state.rows, 'row')}, {rate:.0f} rows/s, lag {_lag(state)}")

    def _print_end(self, state: "QueryState") -> None:
        how = "ended" if state.failure is None else "failed"
        if self._as_json:
            print_json({"query": state.name, "state": how, **_figures(state)})
            sys.stdout.flush()
        else:
            done = f"{counted(state.rows, 'row')} in {counted(state.batches, 'batch', 'batches')}"
            self.note(f"{state.name}: {how}, {done}")

    def _draw(self, states: "Sequence[QueryState]", rates: Sequence[float]) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            console = Console(stderr=True)
            self._live = Live(
                console=console, transient=True, redirect_stdout=sys.stdout.isatty(), redirect_stderr=False
            )
            self._live.start()
        self._live.update(_table(states, rates))

    def close(self) -> None:
        """Removes the live lines. Other printed lines stay."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


class _Rate:
    """Measures rows per second over the last `_WINDOW_S` seconds."""

    def __init__(self, now_s: float) -> None:
        self._seen: deque[tuple[float, int]] = deque([(now_s, 0)])

    def at(self, now_s: float, rows: int) -> float:
        self._seen.append((now_s, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _WINDOW_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        return (rows - before) / (now_s - then_s) if now_s > then_s else 0.0


def _figures(state: "QueryState") -> dict[str, Any]:
    return {"rows": state.rows, "batches": state.batches, "lag": state.lag}


def _lag(state: "QueryState") -> str:
    return "-" if state.lag is None else str(state.lag)


def _table(states: "Sequence[QueryState]", rates: Sequence[float]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for state, rate in zip(states, rates, strict=True):
        if not state.is_over:
            cells = (state.name, counted(state.rows, "row"), f"{rate:.0f} rows/s", f"lag {_lag(state)}")
            table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
