"""Compares topics in Spark with Parquet files and with Spark's Kafka connector: `python -m bench.spark [--rounds N]`.

All have the same rows. The connector uses the same broker, from an environment of its own that has its jars. Both Spark
sessions are warmed up before the measurements and take turns, in an order that alternates between rounds. Then a
running query gets small batches, to measure the minimum duration of a batch, and then no messages, to measure its idle
cost.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import ROOT, Millstream
from bench.report import spread
from bench.section import Section
from bench.spark.connector import Connector
from bench.spark.streaming import BATCH_ROWS, stream
from bench.spark.ways import KEY_BYTES, PARTITIONS, VALUE_BYTES, WAYS, Extent, Place, prepare
from pyspark.sql import SparkSession

import millstream
from millstream.spark import session
from millstream.spark.java import java_environment

BEGIN = "<!-- spark:begin (written by bench/spark) -->"
END = "<!-- spark:end -->"
SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
FLOOR_TARGET_MS = 200.0
IDLE_TARGET_PERCENT = 2.0

WHOLE = Extent(rows=5_000_000, written=1_000_000, warm=4, rounds=5, batches=50, idle_s=10.0)
QUICK = Extent(rows=2_000_000, written=500_000, warm=1, rounds=3, batches=20, idle_s=10.0)
TINY = Extent(rows=5_000, written=2_000, warm=0, rounds=1, batches=2, idle_s=0.1)


@dataclass(frozen=True, slots=True)
class Target:
    """The minimum speed of a way relative to a rival."""

    title: str
    way: str
    rival: str
    least: float = 0.0
    """0: there is no target."""


TARGETS = (
    Target("read, thrown away", "topic", "Parquet files", 0.8),
    Target("read, thrown away", "topic", "connector", 3.0),
    Target("read, thrown away", "topic", "rows that are there"),
    Target("the same rows again and again", "rows that are there", "Parquet files"),
    Target("read, counted by key", "topic, counted", "Parquet files, counted"),
    Target("written", "sink", "connector's sink", 1.5),
    Target("archived", "archive", "Parquet files to Parquet files", 0.8),
)


def main() -> int:
    arguments = _parse()
    extent: Extent = arguments.extent
    section = Section("bench.spark", BEGIN, END)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        peer = Millstream(Path(directory) / "broker")
        peer.start(flush_always=False)
        # Before the session, which changes the environment.
        connector = Connector(java_environment(os.environ))
        spark = session("bench", master="local[2]", settings=SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        try:
            tables = measure(spark, connector, peer.bootstrap, Path(directory), extent)
        finally:
            connector.close()
            spark.stop()
            peer.end()
    conditions = (
        f"{extent.rows:,} rows with keys of {KEY_BYTES} and values of {VALUE_BYTES} bytes in {PARTITIONS} partitions, "
        f"of which {extent.written:,} are written; {extent.rounds} rounds after {extent.warm} to warm up; `local[2]`, "
        f"Parquet with lz4, with zstd where it is written"
    )
    section.publish(conditions, tables, arguments.output)
    return 0


def measure(spark: SparkSession, connector: Connector, bootstrap: str, directory: Path, extent: Extent) -> list[str]:
    with millstream.connect(bootstrap, timeout=60) as client:
        place = Place(spark, connector, client, bootstrap, directory, extent)
        prepare(place)
        found = rounds(place)
        floor_ms, idle_percent = stream(place)
    return [*table(found), "", *streams(floor_ms, idle_percent)]


def rounds(place: Place) -> Mapping[str, Sequence[float]]:
    """Returns the rows per second of each way, for each round after the warm-up."""
    found: dict[str, list[float]] = {way.title: [] for way in WAYS}
    for number in range(place.extent.warm + place.extent.rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            rate = way.rows(place.extent) / way.run(place, number)
            print(f"round {number}, {way.title}: {rate / 1e6:.3g} M rows/s", file=sys.stderr, flush=True)
            if number >= place.extent.warm:
                found[way.title].append(rate)
    return found


def table(found: Mapping[str, Sequence[float]]) -> list[str]:
    lines = [
        "Median (smallest to largest) of the rounds, in M rows/s; a ratio is taken within a round:",
        "",
        "| | rate | beside | has | rate / that | target | |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in TARGETS:
        ours, theirs = found[each.way], found[each.rival]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        cells = (_millions(ours), each.rival, _millions(theirs), spread(ratios))
        held = (f"≥ {each.least:g}", _verdict(statistics.median(ratios) >= each.least)) if each.least else ("", "")
        lines.append(f"| {' | '.join((each.title, *cells, *held))} |")
    return lines


def streams(floor_ms: Sequence[float], idle_percent: float) -> list[str]:
    middle_ms = statistics.median(floor_ms)
    return [
        "| | | target | |",
        "|---|---|---|---|",
        f"| a batch of {BATCH_ROWS} rows, median (smallest to largest) | {spread(floor_ms)} ms "
        f"| < {FLOOR_TARGET_MS:g} ms | {_verdict(middle_ms < FLOOR_TARGET_MS)} |",
        f"| a query without news, CPU of driver and workers | {idle_percent:.1f} % of a core "
        f"| < {IDLE_TARGET_PERCENT:g} % | {_verdict(idle_percent < IDLE_TARGET_PERCENT)} |",
    ]


def _millions(rates: Sequence[float]) -> str:
    return spread([each / 1e6 for each in rates])


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="one minimal round, to test the bench itself")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 5; 3 with --quick)")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    arguments = parser.parse_args()
    arguments.extent = TINY if arguments.tiny else QUICK if arguments.quick else WHOLE
    if arguments.rounds:
        arguments.extent = arguments.extent._replace(rounds=arguments.rounds)
    if arguments.output is None and not (arguments.quick or arguments.tiny):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
