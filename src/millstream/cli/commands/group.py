"""Implements `millstream group list | describe | reset | forget | delete`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.confirmation import ask
from millstream.cli.failures import failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, PARTITIONS_MAX, AsJson, Bootstrap, Timeout, Yes
from millstream.cli.output import counted, print_json, print_line, print_table, shortened
from millstream.cli.positions import TARGETS
from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession
    from millstream.cli.views.group_progress import GroupProgress, OffsetMove
    from millstream.sdk.admin.group_results import GroupDescription, GroupLag, GroupMember

app = typer.Typer(help="Show and manage groups: members, committed offsets and lag.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]


@app.command("list")
def list_groups(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only groups in this state, such as Stable (repeatable)."),
    ] = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the groups."""
    with failures_explained(as_json):
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            rows = session.run(session.client.groups.list(states=states or (), timeout_s=timeout))
        if as_json:
            print_json(
                [
                    {"group": row.group_id, "kind": row.kind, "state": row.state, "protocol_type": row.protocol_type}
                    for row in rows
                ]
            )
        elif rows:
            print_table(("group", "kind", "state"), [(row.group_id, row.kind, row.state) for row in rows])
        else:
            print_line("There are no such groups." if states else "There are no groups yet.")


@app.command()
def describe(
    name: GroupName,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show a group's state and members, and the committed offset, lag and member of each partition."""
    with failures_explained(as_json):
        from millstream.cli.session import connected
        from millstream.cli.views.group_progress import with_members
        from millstream.sdk.admin.group_lag import lag_of

        with connected(bootstrap, timeout) as session:
            client = session.client
            group = session.run(client.groups.describe(name, timeout_s=timeout))
            lags = session.run(lag_of(client, group, timeout))
        rows = with_members(lags, group.members)
        if as_json:
            print_json(_document(group, rows))
        else:
            _print_group(group, rows)


def _document(group: "GroupDescription", rows: "Sequence[GroupProgress]") -> dict[str, Any]:
    from millstream.cli.views.group_progress import total_lag

    return {
        "group": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "lag": total_lag(rows),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "epoch": member.epoch,
                "topics": list(member.topics),
                "partitions": [{"topic": topic, "partition": number} for topic, number in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": row.where.topic,
                "partition": row.where.partition,
                "committed": row.progress.committed.offset if row.progress.committed else None,
                "metadata": row.progress.committed.metadata if row.progress.committed else None,
                "beginning": row.progress.beginning,
                "end": row.progress.end,
                "lag": row.progress.lag,
                "member_id": row.member.member_id if row.member else None,
            }
            for row in rows
        ],
    }


def _print_group(group: "GroupDescription", rows: "Sequence[GroupProgress]") -> None:
    from millstream.cli.views.group_progress import total_lag

    print_line(f"{shortened(group.group_id)}: {group.state.lower()}, {counted(len(group.members), 'member')}")
    print_line(f"  protocol   {group.kind}{', ' + group.assignor if group.assignor else ''}")
    if group.epoch >= 0:
        print_line(f"  epoch      {group.epoch}")
    print_line(f"  lag        {counted(total_lag(rows), 'message')}")
    if group.members:
        print_line()
        shown = [
            (member.label, member.host, ", ".join(member.topics) or "-", len(member.partitions))
            for member in group.members
        ]
        print_table(("member", "host", "topics", "partitions"), shown, numbers=("partitions",))
    if rows:
        print_line()
        table = [
            (
                row.where.topic,
                row.where.partition,
                row.progress.committed.offset if row.progress.committed else "-",
                _end(row.progress),
                "-" if row.progress.lag is None else row.progress.lag,
                row.member.label if row.member else "-",
            )
            for row in rows
        ]
        columns = ("topic", "partition", "committed", "end", "lag", "member")
        print_table(columns, table, numbers=columns[1:5])


def _end(progress: "GroupLag") -> int | str:
    if progress.end is None:
        return "damaged" if progress.is_damaged else "gone"
    return progress.end


@app.command()
def reset(
    name: GroupName,
    target: Annotated[str, typer.Option("--to", "-t", metavar="POSITION", help=f"New position: {TARGETS}.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Only this topic (repeatable; default: all with committed offsets).",
            autocompletion=complete_topic,
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Only this partition of it (repeatable)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect without changing anything.")] = False,
    yes: Yes = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set the committed offsets of a group. Shows what will be read again or skipped, and asks for confirmation.

    Stop the group's consumers first: a running consumer would overwrite the new offsets.
    """
    with failures_explained(as_json):
        from millstream.cli.session import connected
        from millstream.cli.views.offset_resets import parse_target
        from millstream.sdk.admin.group_results import CommittedOffset
        from millstream.sdk.admin.groups import active_members_error
        from millstream.seams.clock import SystemClock

        to = parse_target(target, SystemClock().wall_ms())
        with connected(bootstrap, timeout) as session:
            members = _members(session, name, timeout)
            if members and not dry_run:
                raise active_members_error(name, members)
            rows = session.run(_moves(session, name, topics or (), partitions or (), to, timeout))
            if not as_json:
                _print_moves(name, rows, members)
            if not dry_run and rows:
                if not yes:
                    ask(f"reset group {name}", "Reset it?", as_json=as_json)
                offsets = {row.where: CommittedOffset(row.after) for row in rows}
                session.run(session.client.groups.commit(name, offsets, timeout_s=timeout))
        if as_json:
            print_json(_moves_document(name, rows, done=not dry_run))
        elif not dry_run:
            print_line(f"Reset group {name} in {counted(len(rows), 'partition')}.")


def _members(session: "CommandSession", name: str, timeout_s: float) -> "tuple[GroupMember, ...]":
    """Returns the members of the group, or none if the group does not exist yet."""
    try:
        return session.run(session.client.groups.describe(name, timeout_s=timeout_s)).members
    except MillstreamError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return ()


async def _moves(
    session: "CommandSession", name: str, topics: Sequence[str], partitions: Sequence[int], to: Any, timeout_s: float
) -> "list[OffsetMove]":
    from millstream.cli.views.offset_resets import choose_places, moves

    client = session.client
    committed = await client.groups.offsets(name, timeout_s=timeout_s)
    places = await choose_places(client, committed, topics, partitions, timeout_s)
    if not places:
        text = f"group {name!r} has no committed offsets yet; name a topic with --topic"
        raise MillstreamError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    return await moves(client, committed, places, to, timeout_s)


def _print_moves(name: str, rows: "Sequence[OffsetMove]", members: "Sequence[GroupMember]") -> None:
    if members:
        print_line(f"A reset would be refused now: group {name} has {counted(len(members), 'active member')}.")
    columns = ("topic", "partition", "from", "to", "effect")
    shown = [
        (row.where.topic, row.where.partition, "-" if row.before is None else row.before, row.after, row.effect)
        for row in rows
    ]
    print_table(columns, shown, numbers=columns[1:4])
    again, skipped = sum(row.again for row in rows), sum(row.skipped for row in rows)
    print_line()
    print_line(f"{counted(again, 'message')} will be read again, {skipped} skipped.")


def _moves_document(name: str, rows: "Sequence[OffsetMove]", *, done: bool) -> dict[str, Any]:
    return {
        "group": name,
        "reset": done,
        "again": sum(row.again for row in rows),
        "skipped": sum(row.skipped for row in rows),
        "partitions": [
            {
                "topic": row.where.topic,
                "partition": row.where.partition,
                "from": row.before,
                "to": row.after,
                "again": row.again,
                "skipped": row.skipped,
            }
            for row in rows
        ],
    }


@app.command()
def forget(
    name: GroupName,
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="TOPIC", help="Topic whose offsets to delete.", autocompletion=complete_topic),
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, max=PARTITIONS_MAX, help="Only this partition of it (repeatable)."),
    ] = None,
    yes: Yes = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete a group's committed offsets of a topic that none of its consumers reads. Asks for confirmation."""
    with failures_explained(as_json):
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            groups = session.client.groups
            committed = session.run(groups.offsets(name, None, timeout_s=timeout))
            if not committed:
                session.run(groups.describe(name, timeout_s=timeout))
            wanted = [where for where in sorted(committed) if where.topic == topic]
            places = [where for where in wanted if not partitions or where.partition in partitions]
            if places and not yes:
                text = f"Delete the offsets of group {name} in {counted(len(places), 'partition')} of {topic}?"
                ask(f"delete offsets of group {name}", text, as_json=as_json)
            session.run(groups.delete_offsets(name, places, timeout_s=timeout))
        if as_json:
            print_json({"group": name, "topic": topic, "forgotten": [where.partition for where in places]})
        else:
            print_line(f"Deleted the offsets of group {name} in {counted(len(places), 'partition')} of {topic}.")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups to delete.", show_default=False)],
    yes: Yes = False,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups with their committed offsets. Asks for confirmation; needs --yes without a terminal."""
    with failures_explained(as_json):
        if not yes:
            listed = ", ".join(names)
            ask(f"delete {listed}", f"Delete {listed} with all committed offsets?", as_json=as_json)
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            for name in names:
                session.run(session.client.groups.delete(name, timeout_s=timeout))
                if not as_json:
                    print_line(f"Deleted group {name}.")
        if as_json:
            print_json({"deleted": names})
