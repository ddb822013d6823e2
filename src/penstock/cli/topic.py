"""`penstock topic create | list | delete`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import failures_explained, usage_error
from penstock.cli.options import DEFAULT_BOOTSTRAP, PARTITIONS_MAX, REPLICAS_MAX, AsJson, Bootstrap, Timeout, TopicName
from penstock.cli.output import counted, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.sdk.answers import TopicView

app = typer.Typer(help="Create, list and delete topics.", no_args_is_help=True)


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=PARTITIONS_MAX, help="How many; unless given, the broker decides."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=REPLICAS_MAX, help="Copies of each partition; unless given, the broker decides."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic, such as retention.ms=3600000."),
    ] = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    with failures_explained(as_json):
        rows = dict(_setting(text) for text in settings or ())
        from penstock.cli.session import connected

        with connected(bootstrap, timeout) as session:
            topic_id = session.run(
                session.client.create_topic(
                    name,
                    partitions=partitions or -1,
                    replication_factor=replication_factor or -1,
                    settings=rows,
                    timeout_s=timeout,
                )
            )
            view = session.run(session.client.describe_topic(name, timeout_s=timeout))
        count = len(view.partitions)
        if as_json:
            print_json({"name": name, "id": str(topic_id), "partitions": count})
        else:
            print_line(f"Created topic {name} with {counted(count, 'partition')}.")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Show the broker's own topics too.")] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the topics, with how many messages they hold."""
    with failures_explained(as_json):
        from penstock.cli.session import connected

        with connected(bootstrap, timeout) as session:
            views = session.run(session.client.list_topics(timeout_s=timeout))
            views = [view for view in views if internal or not view.is_internal]
            counts = _message_counts(session, views, timeout)
        if as_json:
            print_json(
                [
                    {
                        "name": view.name,
                        "id": str(view.topic_id),
                        "partitions": len(view.partitions),
                        "messages": counts[view.name],
                        "internal": view.is_internal,
                    }
                    for view in views
                ]
            )
        elif views:
            rows = [(view.name, len(view.partitions), _shown(counts[view.name])) for view in views]
            print_table(("topic", "partitions", "messages"), rows, numbers=("partitions", "messages"))
        else:
            print_line("There are no topics yet. `penstock topic create NAME` makes one.")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to delete.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics, with all their messages. Asks first; where nobody can answer, it takes --yes."""
    with failures_explained(as_json):
        if not yes:
            _ask_to_delete(names, as_json)
        from penstock.cli.session import connected

        with connected(bootstrap, timeout) as session:
            for name in names:
                session.run(session.client.delete_topic(name, timeout_s=timeout))
                if not as_json:
                    print_line(f"Deleted topic {name}.")
        if as_json:
            print_json({"deleted": names})


def _ask_to_delete(names: list[str], as_json: bool) -> None:
    """What is deleted does not come back, so silence is no consent."""
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise usage_error(f"nobody can be asked whether to delete {', '.join(names)} with all messages; add --yes")
    typer.confirm(f"Delete {', '.join(names)} with all messages?", abort=True)


def _message_counts(session: "Session", views: "list[TopicView]", timeout_s: float) -> dict[str, int | None]:
    """How many offsets each topic spans: its messages, and those that compaction or an owner took out of the middle.

    None where a partition is quarantined: one such topic does not hide the others.
    """
    from penstock.model.errors import ErrorCode, PenstockError

    try:
        return _offsets_spanned(session, views, timeout_s)
    except PenstockError as error:
        if error.code is not ErrorCode.PARTITION_QUARANTINED:
            raise
    if len(views) == 1:
        return {views[0].name: None}
    half = len(views) // 2
    return _message_counts(session, views[:half], timeout_s) | _message_counts(session, views[half:], timeout_s)


def _offsets_spanned(session: "Session", views: "list[TopicView]", timeout_s: float) -> dict[str, int | None]:
    from penstock.model.names import TopicPartition
    from penstock.sdk.requests import BEGINNING, LATEST

    places = [TopicPartition(view.name, row.number) for view in views for row in view.partitions]
    counts = {view.name: 0 for view in views}
    if places:
        first = session.run(session.client.list_offsets(dict.fromkeys(places, BEGINNING), timeout_s=timeout_s))
        last = session.run(session.client.list_offsets(dict.fromkeys(places, LATEST), timeout_s=timeout_s))
        for where in places:
            counts[where.topic] += last[where].offset - first[where].offset
    return dict(counts)


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not text.isprintable():
        raise usage_error(f"--set {text!r}: expected NAME=VALUE")
    return name, value


def _shown(count: int | None) -> int | str:
    return "damaged" if count is None else count
