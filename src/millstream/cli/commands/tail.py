"""Implements `millstream tail`, which prints messages as they arrive."""

from typing import Annotated

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.commands.get import MessagePrinter
from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, OnlyPartitions, Raw, Timeout, Verbose
from millstream.cli.positions import EXPECTED, Offset, parse_position
from millstream.model.start_words import FOLLOW_START, GROUP_START, follow_start
from millstream.seams.clock import SystemClock


def tail(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Topics to follow.", show_default=False, autocompletion=complete_topic),
    ],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, and commit what was printed."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-f",
            metavar="POSITION",
            help=f"Start position: {EXPECTED}. Default: {FOLLOW_START}; with --group: {GROUP_START}.",
        ),
    ] = None,
    partitions: OnlyPartitions = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "--count", "-c", min=1, help="Maximum number of messages.")
    ] = None,
    verbose: Verbose = False,
    raw: Raw = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print messages as they arrive, until Ctrl-C. In a terminal, control characters of values are escaped.

    With --group it reads the partitions that the group assigns to it, from the committed offsets on, and commits what
    it has printed. --from then applies only to partitions without a committed offset.
    """
    with failures_explained(as_json):
        start = follow_start(group) if start is None else start
        first = parse_position(start, "--from", SystemClock().wall_ms())
        if as_json + verbose + raw > 1:
            raise usage_error("--json, --verbose and --raw cannot be combined")
        if group is not None and partitions:
            raise usage_error("--group and --partition cannot be combined: the group assigns the partitions")
        if group is not None and isinstance(first, Offset):
            raise usage_error(
                f"--from: a group uses its committed offsets; `millstream group reset {group} --to {start}` sets them"
            )
        from millstream.cli.messages.topic_tail import Limit, follow, follow_as_member
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected

        names = list(dict.fromkeys(topics))
        writers = {name: MessagePrinter(name, as_json=as_json, verbose=verbose, raw=raw).write for name in names}
        with connected(bootstrap, timeout) as session, topic_expected(session, names[0]):
            if group is None:
                session.run(follow(session.client, writers, partitions or (), first, Limit(limit), timeout))
            else:
                session.run(follow_as_member(session.client, group, writers, first, Limit(limit), timeout))
