"""Provides options, the Spark session and error reporting to the commands that start Spark.

Spark is large and optional, so no module of it is imported before a command needs it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO

import typer

from millstream.cli.failures import EXIT_TERMINATED, HintedError, usage_error
from millstream.cli.options import duration_option
from millstream.model.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.cli.views.pipeline_view import PipelineView
    from millstream.spark.pipelines.pipeline_run import Pipeline

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local[N] for N cores of this machine, spark://HOST:7077 for a cluster"
        " (default: all cores of this machine).",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting (repeatable).", show_default=False),
]
Every = Annotated[
    float,
    duration_option("--every", "Interval between progress lines without a terminal.", 10.0),
]
Grace = Annotated[
    float,
    duration_option("--grace", "How long running batches may take to end after a stop.", 30.0, least_s=0.0),
]
LogFile = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Write Spark's complete log to this file.", show_default=False),
]
Traces = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's full traceback of a failure.")]


def spark_expected() -> None:
    """Raises NOT_INSTALLED, with the package to install, if Spark is missing. Starting Spark checks for Java."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        text = f"Spark is not installed here ({', '.join(missing)})"
        hint = "Install it with: pip install 'millstream[spark]' (and 'millstream[spark-java]' if there is no Java)"
        raise HintedError(ErrorCode.NOT_INSTALLED, text, hint)


def read_settings(given: Sequence[str]) -> dict[str, str]:
    """Parses the values of `--conf`, each of the form `NAME=VALUE`."""
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"--conf {each!r}: expected NAME=VALUE, as in spark.sql.shuffle.partitions=8")
        settings[name.strip()] = value
    return settings


class SparkChoice(NamedTuple):
    """The options for running Spark."""

    master: str | None
    settings: dict[str, str]
    log: Path | None
    grace_s: float
    is_verbose: bool

    def opened_log(self) -> TextIO:
        """Opens the log file for appending, or /dev/null if none was given."""
        return (self.log or Path("/dev/null")).open("a", encoding="utf-8")


@contextmanager
def pipeline_started(
    name: str, view: "PipelineView", chosen: SparkChoice, file: Path | None = None
) -> "Iterator[Pipeline]":
    """Opens a pipeline. The block's end stops its queries and the Spark session; the view shows their progress."""
    from millstream.spark.pipelines.pipeline_run import started

    with (
        failures_of_spark(view, chosen),
        chosen.opened_log() as log,
        started(
            name,
            master=chosen.master,
            settings=chosen.settings,
            tell=view.note,
            show=view.show,
            log=log,
            grace_s=chosen.grace_s,
            file=file,
        ) as pipeline,
    ):
        yield pipeline


@contextmanager
def failures_of_spark(view: "PipelineView", chosen: SparkChoice) -> Iterator[None]:
    """Closes the view, and raises a failure of Spark as an error of the command; `--verbose` adds the traceback."""
    from millstream.spark.java import JavaNotFoundError
    from millstream.spark.pipelines.failures import PipelineError
    from millstream.spark.pipelines.stopping import Terminated

    try:
        yield
    except Terminated:
        raise typer.Exit(EXIT_TERMINATED) from None
    except JavaNotFoundError as error:
        raise HintedError(ErrorCode.NOT_INSTALLED, str(error), "") from None
    except PipelineError as error:
        view.close()
        if chosen.is_verbose and error.trace:
            sys.stderr.write(error.trace.rstrip("\n") + "\n")
        raise
    finally:
        view.close()
