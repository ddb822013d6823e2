"""Implements `millstream dump`, which prints a log by record or by batch, from a broker or from its files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.failures import EXIT_DAMAGED, failures_explained, usage_error
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, From, OnlyPartitions, Timeout
from millstream.cli.output import print_json, print_line
from millstream.cli.positions import OFFSET_MAX, Beginning, Latest, Offset, Position, parse_position
from millstream.model.start_words import READ_START
from millstream.seams.clock import SystemClock

if TYPE_CHECKING:
    from millstream.cli.dump.account import BatchPrinter, DumpAccount, LogProblem


def dump(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Name of the topic.", show_default=False, autocompletion=complete_topic),
    ] = None,
    offline: Annotated[
        Path | None,
        typer.Option(
            "--offline",
            metavar="PATH",
            help="Read files, not a broker: a segment, a partition's directory or a data directory.",
        ),
    ] = None,
    partitions: OnlyPartitions = None,
    start: From = READ_START,
    end: Annotated[str | None, typer.Option("--to", "-t", metavar="POSITION", help="Position to stop before.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Maximum number of lines.")] = None,
    batches: Annotated[bool, typer.Option("--batches", help="Print batch headers instead of records.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check everything and report problems, instead of printing records.")
    ] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print a log, one line per record: date, time, topic, partition, offset, key, value and action.

    With --offline it reads files without changing them, even beside a running broker. Damaged data is reported on
    standard error and skipped; the exit code is then 7.
    """
    with failures_explained(as_json):
        if topic is None and offline is None:
            raise usage_error("nothing to dump: name a topic, or files with --offline PATH")
        now_ms = SystemClock().wall_ms()
        first = parse_position(start, "--from", now_ms)
        last = parse_position(end, "--to", now_ms) if end is not None else Latest()
        from millstream.cli.dump.account import BatchPrinter
        from millstream.cli.dump.lines import format_for

        prints = batches or not verify
        printer = BatchPrinter(format_for(batches=batches, as_json=as_json) if prints else None, count)
        query = _DumpQuery(topic, partitions or [], first, last, verify)
        if offline is not None:
            accounts = _from_files(offline, query, printer)
        else:
            accounts = _from_broker(query, printer, bootstrap, timeout)
        damaged = _report(accounts, as_json=as_json, verify=verify)
    if damaged:
        raise typer.Exit(EXIT_DAMAGED)


class _DumpQuery(NamedTuple):
    """The arguments that select what to print."""

    topic: str | None
    partitions: list[int]
    first: Position
    last: Position
    verify: bool


def _from_broker(
    query: _DumpQuery, printer: "BatchPrinter", bootstrap: str, timeout_s: float
) -> "Iterator[DumpAccount]":
    from millstream.cli.dump.wire import WireDump
    from millstream.cli.session import connected
    from millstream.cli.suggestions import topic_expected

    assert query.topic is not None
    with connected(bootstrap, timeout_s) as session, topic_expected(session, query.topic):
        wire = WireDump(session.client, query.topic, timeout_s, printer, verify=query.verify)
        for span in session.run(wire.spans(query.partitions, query.first, query.last)):
            yield session.run(wire.examine(span))
            if printer.is_done:
                return


def _from_files(path: Path, query: _DumpQuery, printer: "BatchPrinter") -> "Iterator[DumpAccount]":
    from millstream.cli.dump import offline
    from millstream.cli.dump.account import DumpAccount, PrintRange
    from millstream.cli.dump.lines import DumpPartition
    from millstream.cli.progress import ProgressBar

    wanted = PrintRange(_offset(query.first, "--from"), _offset(query.last, "--to"))
    logs = offline.find_logs(path, query.topic, query.partitions)
    total = sum(log.size_bytes for log in logs)
    with ProgressBar("checking", total, in_bytes=True, wanted=query.verify and not printer.prints) as bar:
        for log in logs:
            yield offline.examine(log, printer, wanted, checks=query.verify, advance=bar.advance)
            if printer.is_done:
                return
    if query.verify and path.is_dir():
        lost = offline.lost_bytes(path, query.topic, query.partitions)
        if lost:
            yield DumpAccount(DumpPartition(str(path), -1), problems=lost)


def _offset(position: Position, flag: str) -> int:
    if isinstance(position, Offset):
        return position.offset
    if isinstance(position, Beginning):
        return 0
    if isinstance(position, Latest):
        return OFFSET_MAX
    raise usage_error(
        f"{flag}: expected an offset, beginning or latest with --offline; only a broker can look up a time"
    )


def _report(accounts: "Iterator[DumpAccount]", *, as_json: bool, verify: bool) -> bool:
    """Prints the results, and returns True if there are problems. Those of a whole directory have partition -1."""
    from millstream.cli.dump.account import tell

    seen: list[DumpAccount] = []
    for account in accounts:
        seen.append(account)
        if not as_json or not verify:
            tell(account.problems)
        if verify and not as_json and account.where.partition >= 0:
            print_line(account.line())
    problems: Sequence[LogProblem] = [problem for account in seen for problem in account.problems]
    if verify and as_json:
        print_json(
            {
                "partitions": [account.document() for account in seen if account.where.partition >= 0],
                "problems": [problem._asdict() for problem in problems],
            }
        )
    return bool(problems)
