"""Compares Millstream's metrics with prometheus-client's: `python -m bench.metrics [--quick]`.

Three costs count: one observation on the path of a request, the import at the start of a broker, and a scrape. Both
contenders observe the same values into histograms with the same buckets, in alternating turns of one thread, and their
pages must contain the same samples. An import is measured in a new process that has already loaded asyncio and the
modules that a broker always needs.
"""

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path

from bench.peers import ROOT
from bench.report import figure, spread
from bench.section import Section
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client import Histogram as LibraryHistogram
from prometheus_client.parser import text_string_to_metric_families

from millstream.process.metrics import SECONDS_BOUNDS, SLICE_LINES, Histogram, Metric, render, render_in_slices

BEGIN = "<!-- metrics:begin (written by bench/metrics) -->"
END = "<!-- metrics:end -->"
LABEL_SETS = 1_000
OWN, LIBRARY = "Millstream", "prometheus-client"
VALUE_S = 0.0003

_IMPORT = """
import asyncio, bisect, logging, re, threading, time, typing, collections.abc, json, os, socket, struct, types
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
before, begun = resident(), time.process_time()
import {module}
print((time.process_time() - begun) * 1e3, (resident() - before) / 1e6)
"""

Rows = Mapping[str, Sequence[float]]
"""The figures of each contender, one per round."""


def main() -> int:
    arguments = _parse()
    section = Section("bench.metrics", BEGIN, END)
    rounds, calls, sets = arguments.rounds, arguments.calls, arguments.label_sets
    scrape, slice_ms = scrapes(rounds, sets)
    import_ms, import_mb = import_cost(rounds)
    rows = [
        _row("an observation in a histogram, ns", observations(rounds, calls)),
        _row("an increment of a counter, ns", increments(rounds, calls)),
        _row("import, ms", import_ms),
        _row("resident memory after the import, MB", import_mb),
        _row(f"a scrape of {sets:,} histograms, ms", scrape),
        _row("the longest time without other work in this scrape, ms", slice_ms),
    ]
    section.publish(
        f"median (smallest to largest) of {rounds} rounds, CPU time; "
        f"{len(SECONDS_BOUNDS) + 1} buckets in each histogram",
        ["| | Millstream | prometheus-client | prometheus-client / Millstream |", "|---|---|---|---|", *rows],
        arguments.output,
    )
    return 0


def observations(rounds: int, calls: int) -> Rows:
    """Returns the nanoseconds of one observation. Both observe through a bound method, without looking up labels."""
    library = LibraryHistogram("x", "X.", ["api"], registry=CollectorRegistry(), buckets=SECONDS_BOUNDS)
    return _alternating(rounds, calls, {OWN: Histogram().observe, LIBRARY: library.labels("Produce").observe}, VALUE_S)


def increments(rounds: int, calls: int) -> Rows:
    """Returns the nanoseconds of one increment. Millstream's counters are integers of the component."""
    counts = [0]

    def increment(amount: float) -> None:
        counts[0] += 1

    library = Counter("x", "X.", ["api"], registry=CollectorRegistry()).labels("Produce")
    return _alternating(rounds, calls, {OWN: increment, LIBRARY: library.inc}, 1)


def _alternating(rounds: int, calls: int, contenders: Mapping[str, Callable[[float], None]], value: float) -> Rows:
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: 1 if number % 2 == 0 else -1]:
            call = contenders[name]
            begun = time.thread_time_ns()
            for _ in range(calls):
                call(value)
            found[name].append((time.thread_time_ns() - begun) / calls)
    return found


def import_cost(rounds: int) -> tuple[Rows, Rows]:
    """Returns the milliseconds and megabytes of the import, each in a new process."""
    modules = {OWN: "millstream.process.metrics", LIBRARY: "prometheus_client"}
    taken_ms: dict[str, list[float]] = {name: [] for name in modules}
    memory_mb: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(rounds):
        for name, module in modules.items():
            # A broker has imported the package itself before; only the module counts.
            program = "import millstream\n" + _IMPORT.format(module=module)
            ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            taken, memory = map(float, ran.stdout.split())
            taken_ms[name].append(taken)
            memory_mb[name].append(memory)
    return taken_ms, memory_mb


def scrapes(rounds: int, sets: int) -> tuple[Rows, Rows]:
    """Returns the milliseconds of a whole scrape, and of its longest part that runs without interruption."""
    registry = CollectorRegistry()
    library = LibraryHistogram("x_seconds", "X.", ["topic"], registry=registry, buckets=SECONDS_BOUNDS)
    own = {f"topic-{number}": Histogram() for number in range(sets)}
    for number, (topic, each) in enumerate(own.items()):
        for value in _values(number):
            each.observe(value)
            library.labels(topic).observe(value)

    def metrics() -> list[Metric]:
        return [Metric("x_seconds", "histogram", "X.", (({"topic": topic}, each) for topic, each in own.items()))]

    assert _samples(render(metrics())) == _samples(generate_latest(registry)), "both pages have the same samples"
    whole: dict[str, list[float]] = {OWN: [], LIBRARY: []}
    longest: dict[str, list[float]] = {OWN: [], LIBRARY: []}
    for _ in range(rounds):
        gc.collect()
        parts = list(_taken_ms(render_in_slices(metrics())))
        whole[OWN].append(sum(parts))
        longest[OWN].append(max(parts))
        begun = time.thread_time()
        generate_latest(registry)
        taken_ms = (time.thread_time() - begun) * 1e3
        whole[LIBRARY].append(taken_ms)
        longest[LIBRARY].append(taken_ms)
    return whole, longest


def _values(number: int) -> Iterator[float]:
    """Yields some values of different buckets."""
    for exponent in range(1 + number % 7):
        yield 0.00007 * 7**exponent


def _taken_ms(rendering: Coroutine[None, None, bytes]) -> Iterator[float]:
    """Yields the milliseconds of each slice, which runs until it lets other work run."""
    is_over = False
    while not is_over:
        begun = time.thread_time()
        try:
            rendering.send(None)
        except StopIteration:
            is_over = True
        yield (time.thread_time() - begun) * 1e3


def _samples(page: bytes) -> dict[tuple[str, str, float], float]:
    """Returns the samples of a page, without the creation times that only the library writes."""
    return {
        (sample.name, sample.labels["topic"], float(sample.labels.get("le", 0))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def _row(title: str, found: Rows) -> str:
    own, library = statistics.median(found[OWN]), statistics.median(found[LIBRARY])
    ratio = figure(library / own) if own > 0 else ""
    return f"| {title} | {spread(found[OWN])} | {spread(found[LIBRARY])} | {ratio} |"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three short rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick, --tiny)")
    arguments = parser.parse_args()
    arguments.rounds = 1 if arguments.tiny else 3 if arguments.quick else 15
    arguments.calls = 100 if arguments.tiny else 200_000
    arguments.label_sets = 2 * SLICE_LINES // len(SECONDS_BOUNDS) if arguments.tiny else LABEL_SETS
    if arguments.output is None and not (arguments.quick or arguments.tiny):
        arguments.output = str(Path(ROOT) / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
