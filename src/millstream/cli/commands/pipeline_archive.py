"""`millstream pipeline archive | verify`: topics as Parquet files, and whether these are what the log was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import EXIT_DAMAGED, HintedError, failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, TopicName, check_choice
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

if TYPE_CHECKING:
    from millstream.spark.archive import ArchiveProgress, ArchiveVerdict
    from millstream.spark.pipelines.query_monitor import QueryState

_PROGRESS_S = 10.0
_LOSSES = ("fail", "earliest")
_HINTS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "`--data-loss earliest` goes on with what is there, and remembers the hole.",
    ErrorCode.UNKNOWN_TOPIC_ID: "Choose another place for the new topic with --to; the old archive stays as it is.",
    ErrorCode.RESOURCE_NOT_FOUND: "`millstream pipeline archive` makes one.",
}


class ArchiveView(PipelineView):
    """Of messages, where Spark counts files or knows of no query at all."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(as_json=as_json, every_s=_PROGRESS_S)
        self._told: Sequence[QueryState] = ()

    def tell(self, what: str, progress: "ArchiveProgress") -> None:
        from millstream.spark.pipelines.query_monitor import QueryState

        self._told = [QueryState(what, progress.rows, progress.batches, progress.behind)]

    def show(self, states: "Sequence[QueryState]") -> None:
        super().show(self._told)


def archive(
    topic: TopicName,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="A directory, or a URI such as s3://bucket/path.")],
    once: Annotated[bool, typer.Option("--once", help="Archive what is there now, and end.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="How often what has come is archived.")
    ] = 60.0,
    data_loss: Annotated[
        str,
        typer.Option(
            "--data-loss", metavar="|".join(_LOSSES), help="Where messages expired before they could be archived."
        ),
    ] = "fail",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="PATH", help="Where Spark keeps how far it is; otherwise beside the archive."
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
    """Store a topic as Parquet files by day and partition, every message once; the next run goes on behind this one.

    Without --once it goes on with what comes until Ctrl-C. Whatever is killed, a batch is archived whole or not at all.
    `millstream pipeline verify` compares archive and log; `.option("archive", PATH)` reads both as one in Spark.
    """
    with failures_explained(as_json), _hinted():
        spark_expected()
        check_choice("--data-loss", data_loss, _LOSSES)
        chosen = SparkChoice(master, read_settings(conf or []), log, grace, verbose)
        view = ArchiveView(as_json=as_json)
        from millstream.spark.archive import archive as bring_up_to_date
        from millstream.spark.archive.archive_runs import begun

        begun(topic, to, bootstrap)  # What is wrong is said before Spark is started, which takes a while.

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
        _tell_end(done, as_json)


def _tell_end(done: "ArchiveProgress", as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        files = f"{counted(done.files, 'file')} of {shown_size(done.size_bytes)}" if done.files else "nothing new"
        lost = f"; {counted(done.lost, 'offset')} had expired" if done.lost else ""
        print_line(f"Archived {counted(done.rows, 'message')}: {files}{lost}.")


def verify(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where the archive is.", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this one; otherwise all that are there.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    log: LogFile = None,
    verbose: Traces = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Compare archives with their topics: every file, and every message that the log still has.

    Ends with 7 where they differ, and says where.
    """
    with failures_explained(as_json), _hinted():
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
            _tell_verdict(verdict, as_json)
        if any(verdict.differences for verdict in verdicts):
            raise typer.Exit(EXIT_DAMAGED)


def _tell_verdict(verdict: "ArchiveVerdict", as_json: bool) -> None:
    if as_json:
        print_json(asdict(verdict))
        return
    log = f"{verdict.compared} of them compared with the log"
    if verdict.behind is None:
        log = "the topic is gone, or another one by now, so only the files were checked"
    elif verdict.behind:
        log += f", which has {verdict.behind} more"
    lost = f"; {counted(verdict.lost, 'offset')} expired before they were archived" if verdict.lost else ""
    print_line(f"{verdict.topic}: {counted(verdict.rows, 'message')} archived, {log}{lost}.")
    for text in verdict.differences:
        print_line(f"  {text}")
    print_line(f"  {counted(len(verdict.differences), 'difference')}." if verdict.differences else "  No differences.")


@contextmanager
def _hinted() -> Iterator[None]:
    """What to do, where that is another thing than for other commands."""
    try:
        yield
    except MillstreamError as error:
        if isinstance(error, HintedError) or error.code not in _HINTS:
            raise
        raise HintedError(error.code, error.detail, _HINTS[error.code]) from None
