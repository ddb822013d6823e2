"""Implements `millstream pipeline init | run | archive | verify`, which process topics with Spark."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.commands.pipeline_archive import archive, verify
from millstream.cli.commands.pipeline_init import init
from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cli.output import print_json, print_line, print_note, print_table, shown
from millstream.cli.spark import (
    Conf,
    Every,
    Grace,
    LogFile,
    Master,
    SparkChoice,
    Traces,
    failures_of_spark,
    pipeline_started,
    read_settings,
    spark_expected,
)
from millstream.model.default_bootstrap import BOOTSTRAP_VARIABLE

if TYPE_CHECKING:
    from millstream.cli.views.pipeline_view import PipelineView
    from millstream.spark.pipelines.pipeline_run import Pipeline
    from millstream.spark.pipelines.statements import Result

app = typer.Typer(
    help="Process topics with Spark, on this machine or on a cluster: run pipelines, and archive topics.",
    no_args_is_help=True,
)
app.command()(init)
app.command(no_args_is_help=True)(archive)
app.command(no_args_is_help=True)(verify)


@app.command(no_args_is_help=True)
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Python file (.py), SQL file (.sql) or project directory.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- ARGUMENTS...]",
            help="Arguments of a Python file (its sys.argv), after `--`.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    once: Annotated[
        bool, typer.Option("--once", help="Make streams read the available data and end, whatever their trigger.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows to show per statement.")
    ] = 100,
    every: Every = 10.0,
    grace: Grace = 30.0,
    log: LogFile = None,
    verbose: Traces = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until it ends or is stopped by Ctrl-C.

    A Python file uses the variable `spark` as its Spark session. It may start any number of streams. When the file has
    run, the command waits for the streams and shows the rows, the speed and the lag of each. If a stream fails, the
    others are stopped and the command fails. By default, topics are read from the brokers named here, whose addresses
    are in the variable `bootstrap`. Put the file's own options after `--`:
    `millstream pipeline run FILE.py --once -- --day 3`.

    A SQL file contains statements separated by semicolons. Their results are printed. `${bootstrap}` stands for the
    brokers' addresses.

    A project of Spark Declarative Pipelines is a directory with a `spark-pipeline.yml`. Each run reads the new data and
    ends.

    On a cluster, every worker needs the same Python version, with Millstream installed. Add your own modules with
    `--conf spark.submit.pyFiles=a.py,b.zip`. Checkpoints and files must be in storage that all workers can reach.
    """
    with failures_explained(as_json):
        spark_expected()
        settings = read_settings(conf or [])
        from millstream.cli.views.pipeline_view import PipelineView
        from millstream.sdk.connection.address import parse_bootstrap

        parse_bootstrap(bootstrap)
        os.environ[BOOTSTRAP_VARIABLE] = bootstrap  # The default for files that name no brokers.

        view = PipelineView(as_json=as_json, every_s=every)
        chosen = SparkChoice(master, settings, log, grace, verbose)
        if file.is_dir() or file.suffix in (".yml", ".yaml"):
            _run_project(file, view, chosen)
            return
        with failures_of_spark(view, chosen):
            work = _runner_of(file, arguments or [], bootstrap, limit, as_json)
        from millstream.spark.pipelines.pipeline_run import reading_once

        with pipeline_started(file.stem, view, chosen, file) as pipeline, reading_once() if once else nullcontext():
            work(pipeline)
            pipeline.wait()


def _run_project(path: Path, view: "PipelineView", chosen: SparkChoice) -> None:
    from millstream.spark.pipelines.project import run_project, specification

    file = specification(path)
    if file is None:
        raise usage_error(f"{path}: there is no spark-pipeline.yml", "`millstream pipeline init` can create a project.")
    with failures_of_spark(view, chosen), chosen.opened_log() as log:
        run_project(
            file,
            master=chosen.master,
            settings=chosen.settings,
            tell=view.note,
            log=log,
            grace_s=chosen.grace_s,
        )


def _runner_of(
    file: Path, arguments: Sequence[str], bootstrap: str, limit: int, as_json: bool
) -> "Callable[[Pipeline], None]":
    """Returns the function that runs the file. Reports a missing or invalid file before Spark starts."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file in UTF-8"
        raise usage_error(f"{file}: {reason}", "`millstream pipeline init` creates a file to start from.") from None
    if file.suffix == ".py":
        from millstream.spark.pipelines.python_file import compiled, offer_modules, run_python

        code = compiled(file)
        offer_modules(file)
        return lambda pipeline: run_python(file, code, arguments, {"spark": pipeline.spark, "bootstrap": bootstrap})
    if file.suffix == ".sql":
        if arguments:
            raise usage_error(
                "only Python files take arguments; a SQL file uses ${NAME} for the value of --conf NAME=VALUE"
            )
        from millstream.spark.pipelines.statements import run_sql

        def work(pipeline: "Pipeline") -> None:
            pipeline.spark.conf.set("bootstrap", bootstrap)
            run_sql(pipeline.spark, file, text, limit, lambda result: _print_result(result, as_json))

        return work
    raise usage_error(f"{file}: expected a Python file (.py) or a SQL file (.sql)")


def _print_result(result: "Result", as_json: bool) -> None:
    rows = [[_plain(value) for value in row] for row in result.rows]
    if as_json:
        answer = {"columns": list(result.columns), "rows": rows, "truncated": result.is_cut} if result.columns else {}
        print_json({"line": result.statement.line, "seconds": round(result.seconds, 3), **answer})
    elif result.columns:
        numbers = [name for at, name in enumerate(result.columns) if rows and all(_is_number(row[at]) for row in rows)]
        print_table(
            result.columns, [["-" if value is None else value for value in row] for row in rows], numbers=numbers
        )
        if result.is_cut:
            print_line("There are more rows; raise --limit to show them.")
        print_line()
    else:
        print_note(f"line {result.statement.line}: {result.statement.first_line} ({result.seconds:.1f} s)")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """Converts a value to one that JSON can express and people can read."""
    if isinstance(value, bytes | bytearray):
        return shown(bytes(value))
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)
