"""What commands share that start Spark: their options, the session, and how failures of Spark are told.

Of Spark, which is large and has to be installed by itself, nothing is imported before a command needs it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO

import typer

from millstream.cli.failures import EXIT_TERMINATED, HintedError, usage_error
from millstream.model.errors import ErrorCode

if TYPE_CHECKING:
    from millstream.cli.views.pipeline_view import PipelineView
    from millstream.spark.pipelines.pipeline_run import Pipeline

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[N] is N cores of this machine, spark://HOST:7077 a cluster."
        " Otherwise all cores of this machine.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark (repeatable).", show_default=False),
]
Every = Annotated[
    float, typer.Option("--every", min=0.1, metavar="SECONDS", help="How often progress is printed to no terminal.")
]
Grace = Annotated[
    float,
    typer.Option("--grace", min=0.0, metavar="SECONDS", help="How long batches may take to end when it is stopped."),
]
LogFile = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Write all that Spark says to this file.", show_default=False),
]
Traces = Annotated[bool, typer.Option("--verbose", "-v", help="Show a failure with all that Spark says about it.")]


def spark_expected() -> None:
    """NOT_INSTALLED, with what to install, where Spark is not there; whether there is a Java is for Spark's start."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        text = f"Spark is not installed here ({', '.join(missing)})"
        hint = "Get it with: pip install 'millstream[spark]' (and 'millstream[spark-java]' where there is no Java)"
        raise HintedError(ErrorCode.NOT_INSTALLED, text, hint)


def read_settings(given: Sequence[str]) -> dict[str, str]:
    """Of `NAME=VALUE` each."""
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"--conf {each!r}: expected NAME=VALUE, as in spark.sql.shuffle.partitions=8")
        settings[name.strip()] = value
    return settings


class SparkChoice(NamedTuple):
    """What the options say about how to run Spark."""

    master: str | None
    settings: dict[str, str]
    log: Path | None
    grace_s: float
    is_verbose: bool

    def opened_log(self) -> TextIO:
        """What is there stays there; what is said now goes behind it."""
        return (self.log or Path("/dev/null")).open("a", encoding="utf-8")


@contextmanager
def pipeline_started(
    name: str, view: "PipelineView", chosen: SparkChoice, file: Path | None = None
) -> "Iterator[Pipeline]":
    """A session, which ends with its queries; the view shows what they do."""
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
    """The view is closed at the end; a failure is told with all that is known about it, if that is wanted."""
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
