"""Tests pipelines from files: their results, how they end, and every template."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from faults.rounds import ROUNDS
from millstream.cli.failures import EXIT_TERMINATED
from millstream.model.errors import ErrorCode
from millstream.spark.pipelines.failures import PipelineError
from millstream.spark.pipelines.pipeline_run import Pipeline, reading_once
from millstream.spark.pipelines.python_file import run_python
from millstream.spark.pipelines.statements import Result, run_sql, split
from millstream.spark.pipelines.stopping import stop_queries
from millstream.spark.pipelines.templates import make, template
from spark.command import running, stored
from spark.site import LONG_S, Site

STREAMS = ("transform", "count", "parquet")
KEYS = ("a", "b", "c")
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def put(site: Site, numbers: range) -> None:
    with site.client.producer() as producer:
        for number in numbers:
            producer.put(site.topic, f"value-{number}".encode(), key=KEYS[number % len(KEYS)].encode())


def loud(numbers: range) -> list[str]:
    return sorted(f"VALUE-{number}" for number in numbers)


def test_template_streams_stop_gracefully_and_continue_at_their_checkpoint(site: Site) -> None:
    files = [make(template(name), f"{site.topic}-{name}", site.topic, site.files)[0] for name in STREAMS]
    both = site.files / "all.py"
    both.write_text(
        "from runpy import run_path\n"
        f"for file in {[str(file) for file in files]}:\n"
        "    run_path(file, {'spark': spark})\n"
    )
    put(site, range(30))
    with running(site, both, "--every", "0.1", "--json") as pipeline:
        while {each.get("rows") for each in pipeline.states()} != {30}:
            pipeline.hear()
        pipeline.interrupt()
        assert pipeline.ended() == 0, pipeline.errors
    put(site, range(30, 50))
    with watched(site) as going_on, reading_once():
        for file in files:
            run_python(file, compile(here(site, file), str(file), "exec"), (), {"spark": site.spark})
        going_on.wait()
    names = [file.stem for file in files]
    states = {state.name: (state.rows, state.batches, state.is_over) for state in going_on.watch.states()}
    assert states == dict.fromkeys(names, (20, 1, True))
    assert sorted(value for _, value in stored(site, names[0])) == loud(range(50))
    assert dict(stored(site, names[1])) == {"a": "17", "b": "17", "c": "16"}
    assert site.spark.read.parquet(str(site.files / f"{names[2]}.parquet")).count() == 50


def here(site: Site, file: Path) -> str:
    """Returns the file's text with the brokers and directories that the command would set in the environment."""
    text = file.read_text().replace(
        '.option("topic"', f'.option("bootstrap", "{site.broker.bootstrap}").option("topic"'
    )
    return text.replace(f'"{file.stem}.', f'"{file.parent / file.stem}.')


def test_the_report_template_shows_tables_and_writes_a_topic(site: Site) -> None:
    (file,) = make(template("report"), f"{site.topic}-report", site.topic, site.files)
    put(site, range(10))
    text = file.read_text().replace("OPTIONS (", "OPTIONS (bootstrap '${bootstrap}', ")
    results = run(site, file, text)
    answers = [(result.statement.line, [tuple(row)[:2] for row in result.rows]) for result in results if result.columns]
    assert answers == [(7, [(0, 10)]), (10, [("a", 4), ("b", 3), ("c", 3)])]
    assert dict(stored(site, f"{site.topic}-report")) == {"a": "4", "b": "3", "c": "3"}


def run(site: Site, file: Path, text: str, rows_max: int = 100) -> list[Result]:
    site.spark.conf.set("bootstrap", site.broker.bootstrap)
    results: list[Result] = []
    try:
        run_sql(site.spark, file, text, rows_max, results.append)
    finally:
        for view in ("messages", "report"):
            site.spark.catalog.dropTempView(view)
    return results


def test_the_examples_of_the_pipelines_page_work(site: Site) -> None:
    python, sql = re.findall(r"```(?:python|sql)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    put(site, range(6))
    with watched(site) as pipeline, reading_once():
        block = python.replace('"orders")', f'"{site.topic}").option("bootstrap", "{site.broker.bootstrap}")')
        block = block.replace('"loud-orders")', f'"{site.topic}-loud").option("bootstrap", "{site.broker.bootstrap}")')
        exec(block.replace("loud.checkpoint", str(site.files / "checkpoint")), {"spark": site.spark})
        pipeline.wait()
    assert sorted(value for _, value in stored(site, f"{site.topic}-loud")) == loud(range(6))
    sql = sql.replace("OPTIONS (", "OPTIONS (bootstrap '${bootstrap}', ").replace("VIEW orders", "VIEW messages")
    sql = sql.replace("FROM orders", "FROM messages").replace("'orders'", f"'{site.topic}'")
    results = run(site, PAGE, sql.replace("'order-counts'", f"'{site.topic}-report'"))
    assert [[tuple(row) for row in result.rows] for result in results if result.columns] == [
        [("a", 2), ("b", 2), ("c", 2)]
    ]
    assert dict(stored(site, f"{site.topic}-report")) == dict.fromkeys(KEYS, "2")


def test_statements_are_split_with_their_line_numbers(site: Site) -> None:
    text = (
        "-- one; two\nSELECT 1; /* ; */ SELECT ';'\n;\nBEGIN\n  SELECT 1;\n  SELECT 2;\nEND;\n\nSELECT 3 -- ;\n;-- end"
    )
    found = split(site.spark, text)
    assert [(each.line, each.text.strip().split("\n")[0]) for each in found] == [
        (2, "SELECT 1"),
        (2, "SELECT ';'"),
        (4, "BEGIN"),
        (9, "SELECT 3 -- ;"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1;\n\nSELCT 2;", "r.sql, line 3: Syntax error at or near 'SELCT'"),
        ("\nSELECT 1 AS x,\n  no;", r"r.sql, line 2: .*`no` cannot be resolved.* \(line 3\)"),
        (
            "CREATE TEMPORARY VIEW messages USING millstream OPTIONS (bootstrap '${bootstrap}', topic 'none');\n"
            "SELECT * FROM messages",
            "r.sql, line 2: topic 'none': ",
        ),
        ("SELECT 'open", "r.sql, line 1: "),
    ],
)
def test_a_failing_statement_is_reported_with_its_line(text: str, told: str, site: Site) -> None:
    with pytest.raises(PipelineError, match=told):
        run(site, Path("r.sql"), text)


def test_no_statement_runs_when_one_is_invalid_sql(site: Site) -> None:
    with pytest.raises(PipelineError):
        run(site, Path("r.sql"), "CREATE TEMPORARY VIEW early AS SELECT 1; SELCT 2")
    assert not site.spark.catalog.tableExists("early")


def test_results_are_limited_to_the_maximum_number_of_rows(site: Site) -> None:
    (result,) = run(site, Path("r.sql"), "SELECT id FROM range(10)", rows_max=3)
    assert (list(result.columns), len(result.rows), result.is_cut) == (["id"], 3, True)


@contextmanager
def watched(site: Site) -> Iterator[Pipeline]:
    pipeline = Pipeline(site.spark)
    try:
        yield pipeline
    finally:
        pipeline.end(print, 0.0)


def test_a_pipeline_waits_for_all_queries_and_reports_their_progress(site: Site) -> None:
    site.write(range(20))
    with watched(site) as pipeline, reading_once():
        start(site, "one", maxRowsPerTrigger=8)
        start(site, "two")
        pipeline.wait()
        states = {
            state.name: (state.rows, state.batches, state.lag, state.is_over) for state in pipeline.watch.states()
        }
    assert states == {"one": (20, 3, 0, True), "two": (20, 1, 0, True)}


def test_a_failing_query_ends_the_pipeline_with_its_cause(site: Site) -> None:
    site.write(range(3))
    with watched(site) as pipeline:
        start(site, "good")
        start(site, "bad", topic=f"{site.topic}-none")
        with pytest.raises(PipelineError, match=r"query bad: topic '.*-none': ") as caught:
            pipeline.wait()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "\tat org.apache.spark" in caught.value.trace
    assert not site.spark.streams.active


@pytest.mark.parametrize(("grace_s", "batches"), [(LONG_S, 1), (0, 0)])
def test_a_query_is_stopped_after_its_batch_or_after_the_grace_period(grace_s: float, batches: int, site: Site) -> None:
    site.write([1])
    gate, reached = site.files / "gate", site.files / "reached"
    with watched(site) as pipeline:
        query = start(site, "slow", waiting_for(gate, reached))
        while not reached.exists():
            assert query.isActive
            time.sleep(0.01)
        cut: list[str] = []
        stopping = Thread(target=lambda: cut.extend(stop_queries(site.spark, pipeline.watch, grace_s)))
        stopping.start()
        if batches:
            gate.touch()
        stopping.join(LONG_S)
        assert not query.isActive
        gate.touch()
    (state,) = pipeline.watch.states()
    assert (state.batches, cut) == (batches, [] if batches else ["slow"])


def waiting_for(gate: Path, reached: Path) -> Any:
    """Returns a UDF that creates `reached` and then waits for `gate`. Pickled by value, for the workers."""

    def wait(value: bytes) -> bytes:
        reached.touch()
        while not gate.exists():
            time.sleep(0.01)
        return value

    return udf(wait, "binary", useArrow=False)


def start(site: Site, name: str, change: Any = None, **options: object) -> StreamingQuery:
    frame = site.spark.readStream.format("millstream").options(**site.stream(**options).options).load()
    if change is not None:
        frame = frame.withColumn("value", change("value"))
    writer = frame.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(site.files / name)).start()


def test_a_signal_while_spark_starts_ends_the_command(site: Site) -> None:
    file = site.files / "nothing.py"
    file.write_text("")
    with running(site, file) as pipeline:
        pipeline.hear_error("Starting Spark")
        pipeline.terminate()
        assert pipeline.ended() == EXIT_TERMINATED


def test_a_declarative_project_writes_a_topic_and_tables(site: Site) -> None:
    """A run takes long, so only the long form of the test runs the project twice and checks that its tables persist."""
    project, *_ = make(template("declarative"), f"{site.topic}-project", site.topic, site.files)
    for done in range(0, 10 * min(ROUNDS, 2), 10):
        put(site, range(done, done + 10))
        with running(site, project) as pipeline:
            assert pipeline.ended() == 0, pipeline.errors
        there = range(done + 10)
        assert sorted(value for _, value in stored(site, project.name)) == loud(there)
        tables = [site.spark.read.parquet(str(project / "spark-warehouse" / name)) for name in ("messages", "counts")]
        assert tables[0].count() == len(there)
        counts = dict(map(tuple, tables[1].selectExpr("CAST(key AS STRING)", "messages").collect()))
        assert counts == Counter(KEYS[number % len(KEYS)] for number in there)
