"""Implements `millstream topic create | list | describe | alter | delete | empty`."""

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.confirmation import ask
from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    PARTITIONS_MAX,
    REPLICAS_MAX,
    AsJson,
    Bootstrap,
    Timeout,
    TopicName,
    Yes,
)
from millstream.cli.output import counted, print_json, print_line, print_note, print_table, shown_size
from millstream.cli.setting_values import read_settings
from millstream.model.setting_values import readable_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.model.names import TopicPartition
    from millstream.sdk.responses import TopicView
    from millstream.sdk.wire_client import WireClient

app = typer.Typer(help="Create, list, describe, alter, delete and empty topics.", no_args_is_help=True)

PAGE_TOPICS = 100
_PAGE_MAX = 1_000

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", "--set", "-s", metavar="NAME=VALUE", help="A setting, such as retention.ms=7d (repeatable)."
    ),
]
Compact = Annotated[bool, typer.Option("--compact", help="Compact the topic: keep the last message of each key.")]


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=PARTITIONS_MAX, help="Number of partitions (default: set by the broker)."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=REPLICAS_MAX, help="Copies of each partition (default: set by the broker)."),
    ] = None,
    settings: Settings = None,
    compact: Compact = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    with failures_explained(as_json):
        rows = _requested_settings(settings, compact)
        from millstream.cli.session import connected

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
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Topics per page.")] = PAGE_TOPICS,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TOPIC", help="Show the page after this topic.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all topics instead of a page.")] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics by name, in pages, with their number of messages and their size."""
    with failures_explained(as_json):
        from millstream.cli.session import connected
        from millstream.sdk.admin.topic_sizes import topic_sizes

        with connected(bootstrap, timeout) as session:
            wanted = None if everything else limit
            views, more = session.run(_page(session.client, wanted, after, timeout, internal=internal))
            rows = session.run(topic_sizes(session.client, views, timeout))
        if as_json:
            documents = [
                {
                    "name": row.view.name,
                    "id": str(row.view.topic_id),
                    "partitions": len(row.view.partitions),
                    "messages": row.messages,
                    "bytes": row.size_bytes,
                    "internal": row.view.is_internal,
                }
                for row in rows
            ]
            print_json({"topics": documents, "after": more})
            return
        if rows:
            cells = [
                (
                    row.view.name,
                    len(row.view.partitions),
                    "damaged" if row.messages is None else row.messages,
                    "?" if row.size_bytes is None else shown_size(row.size_bytes),
                )
                for row in rows
            ]
            columns = ("topic", "partitions", "messages", "size")
            print_table(columns, cells, numbers=columns[1:])
        elif after is None:
            print_line("There are no topics yet. `millstream topic create NAME` creates one.")
        else:
            print_line(f"There are no topics after {after}.")
        if more is not None:
            print_note(f"There are more: --after {more} shows the next page, --all shows all.")


async def _page(
    client: "WireClient", limit: int | None, after: str | None, timeout_s: float, *, internal: bool
) -> "tuple[list[TopicView], str | None]":
    """Returns up to `limit` topics (None: all) after the name `after`, and the name to continue after, or None."""
    views: list[TopicView] = []
    while True:
        missing = _PAGE_MAX if limit is None else limit - len(views)
        page = await client.admin.list_topics(limit=missing, after=after, internal=internal, timeout_s=timeout_s)
        views += page.topics
        after = page.after
        if after is None or (limit is not None and len(views) >= limit):
            return views, after


@app.command()
def describe(
    name: TopicName,
    all_settings: Annotated[bool, typer.Option("--all-settings", help="Include settings at their defaults.")] = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show a topic's settings, and its partitions with leader, replicas, offsets and size."""
    with failures_explained(as_json):
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected
        from millstream.cli.views.topic_description import describe_topic

        with connected(bootstrap, timeout) as session, topic_expected(session, name):
            description = session.run(describe_topic(session.client, name, timeout, all_settings=all_settings))
        if as_json:
            print_json(description.document())
        else:
            description.print()


@app.command()
def alter(
    name: TopicName,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Setting to reset to its default (repeatable).")
    ] = None,
    compact: Compact = False,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="New total number, higher than now."),
    ] = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or add partitions."""
    with failures_explained(as_json):
        chosen = _requested_settings(settings, compact)
        to_unset = list(dict.fromkeys(unset or ()))
        both = sorted(chosen.keys() & set(to_unset))
        if both:
            raise usage_error(f"--unset {both[0]}: the same command also sets it")
        if not chosen and not to_unset and partitions is None:
            raise usage_error("nothing to change: give --setting, --unset, --compact or --partitions")
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected
        from millstream.sdk.admin.admin_results import ResourceKind

        with connected(bootstrap, timeout) as session, topic_expected(session, name):
            admin = session.client.admin
            if chosen or to_unset:
                session.run(admin.alter_settings(ResourceKind.TOPIC, name, chosen, unset=to_unset, timeout_s=timeout))
                if not as_json:
                    for key, value in chosen.items():
                        print_line(f"Set {key} to {readable_setting(key, value)}.")
                    for key in to_unset:
                        print_line(f"{key} is at its default again.")
            if partitions is not None:
                session.run(admin.create_partitions(name, partitions, timeout_s=timeout))
                if not as_json:
                    print_line(f"Topic {name} has {counted(partitions, 'partition')} now.")
                    print_line("New messages of a key may go to another partition than its earlier ones.")
        if as_json:
            print_json({"name": name, "set": chosen, "unset": to_unset, "partitions": partitions})


@app.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Topics to delete.", show_default=False, autocompletion=complete_topic),
    ],
    yes: Yes = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their messages. Asks for confirmation; needs --yes without a terminal."""
    with failures_explained(as_json):
        if not yes:
            which = ", ".join(names)
            ask(f"delete {which} with all messages", f"Delete {which} with all messages?", as_json=as_json)
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected

        with connected(bootstrap, timeout) as session:
            for name in names:
                with topic_expected(session, name):
                    session.run(session.client.delete_topic(name, timeout_s=timeout))
                if not as_json:
                    print_line(f"Deleted topic {name}.")
        if as_json:
            print_json({"deleted": names})


@app.command()
def empty(
    name: TopicName,
    yes: Yes = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete all current messages of a topic, and keep the topic. Shows their number and asks for confirmation.

    Offsets are never reused: the next message gets the next offset. Messages that arrive while it asks are kept.
    """
    with failures_explained(as_json):
        from millstream.cli.session import connected
        from millstream.cli.suggestions import topic_expected
        from millstream.sdk.admin.topic_sizes import extents

        with connected(bootstrap, timeout) as session, topic_expected(session, name):
            client = session.client
            view = session.run(client.describe_topic(name, timeout_s=timeout))
            spans = session.run(extents(client, [view], timeout))
            for where, span in spans.items():
                if span is None:
                    raise _damaged(where)
            filled = {where: span for where, span in spans.items() if span is not None and span.messages}
            count = sum(span.messages for span in filled.values())
            if filled and not yes:
                what = f"the {counted(count, 'message')} of {name}"
                ask(f"delete {what}", f"Delete {what}?", as_json=as_json)
            ends = {where: span.next for where, span in filled.items()}
            if ends:
                session.run(_delete_records(client, name, ends, timeout))
        if as_json:
            rows = [{"partition": where.partition, "first_offset": end} for where, end in sorted(ends.items())]
            print_json({"name": name, "deleted": count, "partitions": rows})
        elif count:
            print_line(f"Deleted {counted(count, 'message')} of topic {name}.")
        else:
            print_line(f"Topic {name} is empty already.")


def _damaged(where: "TopicPartition") -> Exception:
    from millstream.model.errors import ErrorCode, MillstreamError

    return MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{where} is damaged and cannot be emptied")


async def _delete_records(
    client: "WireClient", name: str, ends: "Mapping[TopicPartition, int]", timeout_s: float
) -> None:
    from millstream.model.errors import ErrorCode, MillstreamError

    try:
        await client.admin.delete_records(ends, timeout_s=timeout_s)
    except MillstreamError as error:
        if error.code is not ErrorCode.POLICY_VIOLATION:
            raise
        hint = f"`millstream topic alter {name} --setting cleanup.policy=compact,delete` allows it"
        text = f"topic {name!r} is only compacted, so the broker keeps the last message of each key"
        raise MillstreamError(error.code, f"{text}; {hint}, or delete single keys with tombstones") from error


def _requested_settings(settings: list[str] | None, compact: bool) -> dict[str, str]:
    chosen = read_settings(settings or (), "--setting")
    if compact and chosen.setdefault("cleanup.policy", "compact") != "compact":
        raise usage_error("--compact and --setting cleanup.policy contradict each other")
    return chosen
