"""Implements `millstream pipeline archive | verify`, which store topics as Parquet files and check these files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import EXIT_DAMAGED, HintedError, failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, TopicName, check_choice, duration_option
from millstream.cli.output import counted, print_json, print_line, shown_size
from millstream.cli.spark import (
    Conf,
    Grace,
    LogFile,
    Master,
    SparkChoice,
    Traces,
    pipeline_started,
    read_settings,
    spark_expected,
)
from millstream.cli.views.pipeline_view import PipelineView
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.start_words import BEGINNING, start_word

if TYPE_CHECKING:
    from millstream.spark.archive import ArchiveProgress, ArchiveVerdict
    from millstream.spark.pipelines.query_monitor import QueryState

_PROGRESS_S = 10.0
_LOSSES = ("fail", "earliest")
_HINTS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "`--data-loss earliest` continues with the available messages, and records the gap.",
    ErrorCode.UNKNOWN_TOPIC_ID: "Choose another directory for the new topic with --to; the old archive is not changed.",
    ErrorCode.RESOURCE_NOT_FOUND: "`millstream pipeline archive` creates an archive.",
}


class ArchiveView(PipelineView):
    """Shows progress in messages. Spark counts files instead, and `verify` runs no streaming query at all."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(as_json=as_json, every_s=_PROGRESS_S)
        self._latest: Sequence[QueryState] = ()

    def tell(self, what: str, progress: "ArchiveProgress") -> None:
        from millstream.spark.pipelines.query_monitor import QueryState

        self._latest = [QueryState(what, progress.rows, progress.batches, progress.behind)]

    def show(self, states: "Sequence[QueryState]") -> None:
        super().show(self._latest)


def archive(
    topic: TopicName,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="Directory, or URI such as s3://bucket/path.")],
    once: Annotated[bool, typer.Option("--once", help="Archive the available messages, and end.")] = False,
    every: Annotated[
        float,
        duration_option("--every", "Interval between two batches of the archive.", 60.0),
    ] = 60.0,
    data_loss: Annotated[
        str,
        typer.Option(
            "--data-loss", metavar="|".join(_LOSSES), help="What to do if messages expired before they were archived."
        ),
    ] = "fail",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="PATH", help="Directory of Spark's checkpoint (default: beside the archive)."
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    grace: Grace = 30.0,
    log: LogFile = None,
    verbose: Traces = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Store a topic as Parquet files by day and partition, each message once. The next run continues after this one.

    Without --once it continues with new messages until Ctrl-C. A batch is archived completely or not at all, even if a
    process is killed. `millstream pipeline verify` compares archive and log; `.option("archive", PATH)` reads both as
    one in Spark.
    """
    with failures_explained(as_json), _archive_hints():
        spark_expected()
        data_loss = "earliest" if start_word(data_loss) == BEGINNING else data_loss
        check_choice("--data-loss", data_loss, _LOSSES)
        chosen = SparkChoice(master, read_settings(conf or []), log, grace, verbose)
        view = ArchiveView(as_json=as_json)
        from millstream.spark.archive import archive as bring_up_to_date
        from millstream.spark.archive.archive_runs import begun

        begun(topic, to, bootstrap)  # Reports mistakes before Spark starts, which takes a while.

        what = f"archive of {topic}"
        with pipeline_started(what, view, chosen) as pipeline:
            done = bring_up_to_date(
                pipeline.spark,
                topic,
                to,
                bootstrap=bootstrap,
                once=once,
                every=every,
                data_loss=data_loss,
                checkpoint=checkpoint,
                on_progress=partial(view.tell, what),
                is_stopped=pipeline.asked_to_end(),
                grace=grace,
            )
        _print_summary(done, as_json)


def _print_summary(done: "ArchiveProgress", as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        files = f"{counted(done.files, 'file')} of {shown_size(done.size_bytes)}" if done.files else "nothing new"
        lost = f"; {counted(done.lost, 'offset')} had expired" if done.lost else ""
        print_line(f"Archived {counted(done.rows, 'message')}: {files}{lost}.")


def verify(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory or URI of the archive.", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic (default: all in the archive).")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    log: LogFile = None,
    verbose: Traces = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Compare archives with their topics: every file, and every message that the log still has.

    Prints the differences, and exits with 7 if there are any.
    """
    with failures_explained(as_json), _archive_hints():
        spark_expected()
        chosen = SparkChoice(master, read_settings(conf or []), log, 0.0, verbose)
        from millstream.sdk.connection.address import parse_bootstrap
        from millstream.spark.archive import verify as compare
        from millstream.spark.archive.verification import archives_in

        parse_bootstrap(bootstrap)
        archives_in(path, topic)
        view = ArchiveView(as_json=as_json)

        def tell(topic: str, progress: "ArchiveProgress") -> None:
            view.tell(f"verify of {topic}", progress)

        with pipeline_started("verify", view, chosen) as pipeline:
            verdicts = compare(pipeline.spark, path, bootstrap=bootstrap, topic=topic, on_progress=tell)
        for verdict in verdicts:
            _print_verdict(verdict, as_json)
        if any(verdict.differences for verdict in verdicts):
            raise typer.Exit(EXIT_DAMAGED)


def _print_verdict(verdict: "ArchiveVerdict", as_json: bool) -> None:
    if as_json:
        print_json(asdict(verdict))
        return
    log = f"{verdict.compared} of them compared with the log"
    if verdict.behind is None:
        log = "the topic was deleted or recreated, so only the files were checked"
    elif verdict.behind:
        log += f", which has {verdict.behind} more"
    lost = f"; {counted(verdict.lost, 'offset')} expired before they were archived" if verdict.lost else ""
    print_line(f"{verdict.topic}: {counted(verdict.rows, 'message')} archived, {log}{lost}.")
    for text in verdict.differences:
        print_line(f"  {text}")
    print_line(f"  {counted(len(verdict.differences), 'difference')}." if verdict.differences else "  No differences.")


@contextmanager
def _archive_hints() -> Iterator[None]:
    """Gives errors a hint that fits archives, where the hint of other commands does not."""
    try:
        yield
    except MillstreamError as error:
        if isinstance(error, HintedError) or error.code not in _HINTS:
            raise
        raise HintedError(error.code, error.detail, _HINTS[error.code]) from None
