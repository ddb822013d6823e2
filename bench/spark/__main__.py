"""Topics in Spark, beside Parquet files with the same rows: `python -m bench.spark [--quick]`.

Rows are read by the same session in turns, from the topic and from the files, and thrown away or counted by key. A
running query is given small batches, for the least that one takes, and then nothing, for what that costs.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from bench.peers import ROOT, Penstock
from bench.report import figure, machine, rewrite
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.spark import session

BEGIN = "<!-- spark:begin (written by bench/spark) -->"
END = "<!-- spark:end -->"
TOPIC = "rows"
PARTITIONS = 4
KEYS = 1000
CHUNK = 100_000
BATCH_ROWS = 200
SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
READ_TARGET = 0.8
FLOOR_TARGET_MS = 200.0
IDLE_TARGET_PERCENT = 2.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is done."""

    rows: int
    rounds: int
    batches: int
    idle_s: float


WHOLE = Extent(5_000_000, 5, 50, 10.0)
QUICK = Extent(2_000_000, 3, 20, 10.0)


@dataclass(frozen=True, slots=True)
class Read:
    """Rows a second in each round."""

    title: str
    topic: Sequence[float]
    parquet: Sequence[float]


def main() -> int:
    arguments = _parse()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        peer = Penstock(Path(directory))
        peer.start(flush_always=False)
        spark = session("bench", master="local[2]", settings=SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        try:
            lines = measure(spark, peer.bootstrap, Path(directory), arguments.extent)
        finally:
            spark.stop()
            peer.end()
    lines = [
        "",
        f"`{' '.join(['python -m bench.spark', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d', time.gmtime())}: "
        f"{arguments.extent.rows:,} rows with keys of 16 and values of 100 bytes in {PARTITIONS} partitions, "
        f"{arguments.extent.rounds} rounds after one to warm up; `local[2]`, Parquet with lz4. "
        f"{Penstock(Path()).version()}.",
        f"Machine: {machine()}; load average {load_before:.1f} before the run began.",
        "",
        *lines,
        "",
    ]
    print("\n".join(lines))
    if arguments.output:
        rewrite(Path(arguments.output), lines, BEGIN, END)
    return 0


def measure(spark: SparkSession, bootstrap: str, directory: Path, extent: Extent) -> list[str]:
    files = str(directory / "parquet")
    with penstock.connect(bootstrap, timeout=60) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        fill(client, extent.rows)
        reader = spark.read.format("penstock").options(bootstrap=bootstrap, topic=TOPIC)
        topic = reader.load()
        topic.write.option("compression", "lz4").parquet(files)
        reads = [
            compare("all columns, thrown away", topic, spark.read.parquet(files), extent, _throw_away),
            compare(
                "rows counted by key",
                reader.schema("key BINARY").load(),
                spark.read.parquet(files),
                extent,
                _count_by_key,
            ),
        ]
        floor_ms, idle_percent = stream(spark, client, bootstrap, extent)
    return table(reads, floor_ms, idle_percent)


def fill(client: penstock.Client, rows: int) -> None:
    with client.producer() as producer:
        for first in range(0, rows, CHUNK):
            numbers = range(first, min(first + CHUNK, rows))
            keys = pa.array([f"{number % KEYS:016}" for number in numbers])
            values = pa.array([f"{number:0100}" for number in numbers])
            producer.put_many(TOPIC, pa.table({"key": keys, "value": values}))


def compare(
    title: str,
    topic: DataFrame,
    parquet: DataFrame,
    extent: Extent,
    work: Callable[[DataFrame], None],
) -> Read:
    found: dict[str, list[float]] = {"topic": [], "parquet": []}
    for turn in range(extent.rounds + 1):
        for name, frame in (("topic", topic), ("parquet", parquet)):
            begin_s = time.perf_counter()
            work(frame)
            if turn:
                found[name].append(extent.rows / (time.perf_counter() - begin_s))
    return Read(title, found["topic"], found["parquet"])


def _throw_away(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _count_by_key(frame: DataFrame) -> None:
    frame.groupBy("key").count().write.format("noop").mode("overwrite").save()


def stream(spark: SparkSession, client: penstock.Client, bootstrap: str, extent: Extent) -> tuple[list[float], float]:
    """Milliseconds of each small batch, and the CPU of driver and workers while nothing comes, in percent of a core."""
    frame = spark.readStream.format("penstock").options(bootstrap=bootstrap, topic=TOPIC).load()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, client.producer(linger=0) as producer:
        query = frame.writeStream.format("noop").option("checkpointLocation", directory).start()
        try:
            query.processAllAvailable()
            for _ in range(extent.batches):
                producer.put_many(TOPIC, [b"v" * 100] * BATCH_ROWS, partition=0).result()
                query.processAllAvailable()
            took_ms = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
            before_s = _cpu_s()
            time.sleep(extent.idle_s)
            after_s = _cpu_s()
            spent_s = sum(after_s[each] - before_s[each] for each in before_s.keys() & after_s.keys())
            idle_percent = spent_s / extent.idle_s * 100
        finally:
            query.stop()
    return [float(each) for each in took_ms[extent.batches // 5 :]], idle_percent


def _cpu_s() -> dict[int, float]:
    """Of each process below this one that is no broker, its own included."""
    rows: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, text = path.read_text().rpartition(") ")
            is_broker = b"\0serve\0" in path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        fields = text.split()
        spent_s = 0.0 if is_broker else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        rows[int(path.parent.name)] = int(fields[1]), spent_s
    family = {os.getpid()}
    while more := {number for number, (parent, _) in rows.items() if parent in family} - family:
        family |= more
    return {number: rows[number][1] for number in family & rows.keys()}


def table(reads: Sequence[Read], floor_ms: Sequence[float], idle_percent: float) -> list[str]:
    lines = ["| | topic, M rows/s | Parquet, M rows/s | topic / Parquet | target | |", "|---|---|---|---|---|---|"]
    for each in reads:
        topic, parquet = statistics.median(each.topic), statistics.median(each.parquet)
        ratio = topic / parquet
        lines.append(
            f"| {each.title} | {_millions(each.topic)} | {_millions(each.parquet)} | {ratio:.2f} | ≥ {READ_TARGET:g} "
            f"| {_verdict(ratio >= READ_TARGET)} |"
        )
    middle_ms = statistics.median(floor_ms)
    return [
        *lines,
        "",
        "| | | target | |",
        "|---|---|---|---|",
        f"| a batch of {BATCH_ROWS} rows, median / least | {middle_ms:.0f} / {min(floor_ms):.0f} ms "
        f"| < {FLOOR_TARGET_MS:g} ms | {_verdict(middle_ms < FLOOR_TARGET_MS)} |",
        f"| a query without news, CPU of driver and workers | {idle_percent:.1f} % of a core "
        f"| < {IDLE_TARGET_PERCENT:g} % | {_verdict(idle_percent < IDLE_TARGET_PERCENT)} |",
    ]


def _millions(rates: Sequence[float]) -> str:
    low, middle, high = (figure(each / 1e6) for each in (min(rates), statistics.median(rates), max(rates)))
    return f"{middle} ({low}–{high})"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, printed only")
    parser.add_argument("--output", help="the page to rewrite (bench/RESULTS.md; with --quick none)")
    arguments = parser.parse_args()
    arguments.extent = QUICK if arguments.quick else WHOLE
    if arguments.output is None and not arguments.quick:
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
