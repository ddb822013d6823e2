"""Implements `millstream cluster info | services | backups`: an overview, the service map and the followers.

The commands that create and manage local clusters are in `cluster_create`.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millstream.cli.failures import failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Timeout
from millstream.cli.output import counted, print_json, print_line, print_table, shown_size
from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.model.names import TopicPartition
    from millstream.sdk.admin.service_map import Backup
    from millstream.sdk.wire_client import WireClient

T = TypeVar("T")

app = typer.Typer(help="Show the cluster, and manage local clusters.", no_args_is_help=True)

_PAGE_TOPICS = 1_000


@app.command()
def info(timeout: Timeout = 30.0, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the cluster's id, its brokers with their versions, and the number of topics, bytes and groups."""
    with failures_explained(as_json):
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            facts = session.run(_facts(session.client, timeout))
        if as_json:
            print_json(facts)
        else:
            _print_facts(facts)


Topics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics whose partitions to show.")]


@app.command()
def services(
    topics: Topics = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show which services run where. With topics, also show the leaders of their partitions."""
    with failures_explained(as_json):
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            found = session.run(session.client.service_map(topics or [], timeout_s=timeout))
        services = [service._asdict() for service in found.services]
        leaders = [{**where._asdict(), "leader": at.node_id, "epoch": at.epoch} for where, at in found.leaders.items()]
        if as_json:
            print_json({"cluster_id": found.cluster_id, "services": services, "leaders": leaders})
            return
        rows = [
            (each.kind, "" if each.node_id < 0 else each.node_id, _address(each.host, each.port), each.detail)
            for each in found.services
        ]
        print_table(("service", "broker", "address", ""), rows, numbers=("broker",))
        if topics:
            print_line()
            led = [(where.topic, where.partition, _node(at.node_id), at.epoch) for where, at in found.leaders.items()]
            print_table(("topic", "partition", "leader", "epoch"), led, numbers=("partition", "leader", "epoch"))


@app.command()
def backups(
    topics: Topics = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the followers of each partition and their lag, for all topics or the named ones."""
    with failures_explained(as_json):
        from millstream.cli.session import connected

        with connected(bootstrap, timeout) as session:
            found = session.run(session.client.backup_map(topics, timeout_s=timeout))
        if as_json:
            print_json({"note": found.note or None, "partitions": [_backup(*row) for row in found.partitions.items()]})
            return
        rows = [
            (where.topic, where.partition, _node(backup.leader_id), backup.end_offset, _followers(backup))
            for where, backup in found.partitions.items()
        ]
        header = ("topic", "partition", "leader", "end", "followers")
        print_table(header, rows, numbers=("partition", "leader", "end"))
        if found.note:
            print_line()
            print_line(f"{found.note[:1].upper()}{found.note[1:]}.")


def _address(host: str, port: int) -> str:
    return host if port < 0 else f"{host}:{port}"


def _node(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _followers(backup: "Backup") -> str:
    """Formats the followers, each with the number of messages that it lags behind the leader."""
    shown = [
        f"{each.node_id}{'' if each.in_sync else ' (out of sync)'}"
        + (f" -{backup.end_offset - each.end_offset}" if 0 <= each.end_offset < backup.end_offset else "")
        for each in backup.followers
    ]
    return ", ".join(shown) or "-"


def _backup(where: "TopicPartition", backup: "Backup") -> dict[str, Any]:
    return {
        **where._asdict(),
        "leader": backup.leader_id,
        "end_offset": backup.end_offset,
        "high_watermark": backup.high_watermark,
        "followers": [each._asdict() for each in backup.followers],
    }


async def _facts(client: "WireClient", timeout_s: float) -> dict[str, Any]:
    view = await client.metadata([], timeout_s=timeout_s)
    brokers = []
    for node_id, broker in sorted(view.brokers.items()):
        answer = await _if_served(client.info(node_id=node_id, timeout_s=timeout_s))
        brokers.append(
            {
                "node_id": node_id,
                "host": broker.host,
                "port": broker.port,
                "version": answer.broker.version if answer else None,
                "drift_ms": answer.drift_ms if answer else None,
                "controller": node_id == view.controller_id,
            }
        )
    directories = await _if_served(client.admin.describe_log_dirs(timeout_s=timeout_s))
    groups = await _if_served(client.groups.list(timeout_s=timeout_s))
    return {
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id,
        "brokers": brokers,
        **await _topic_counts(client, timeout_s),
        "bytes": None if directories is None else sum(sum(row.partition_bytes.values()) for row in directories),
        "groups": None if groups is None else len(groups),
    }


async def _topic_counts(client: "WireClient", timeout_s: float) -> dict[str, int]:
    """Counts the topics and partitions of users and, separately, the internal topics."""
    counts = {"topics": 0, "partitions": 0, "internal_topics": 0}
    after = None
    while True:
        page = await client.admin.list_topics(limit=_PAGE_TOPICS, after=after, internal=True, timeout_s=timeout_s)
        own = [view for view in page.topics if not view.is_internal]
        counts["topics"] += len(own)
        counts["partitions"] += sum(len(view.partitions) for view in own)
        counts["internal_topics"] += len(page.topics) - len(own)
        after = page.after
        if after is None:
            return counts


async def _if_served(answer: Awaitable[T]) -> T | None:
    """Returns the answer, or None if the broker does not support the request. The other facts are still shown."""
    try:
        return await answer
    except MillstreamError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None


def _print_facts(facts: dict[str, Any]) -> None:
    internal = counted(facts["internal_topics"], "internal topic")
    print_line(f"Cluster {facts['cluster_id']}")
    print_line(f"  topics     {facts['topics']} with {counted(facts['partitions'], 'partition')}, and {internal}")
    print_line(f"  data       {'-' if facts['bytes'] is None else shown_size(facts['bytes'])}")
    print_line(f"  groups     {'-' if facts['groups'] is None else facts['groups']}")
    print_line()
    rows = [
        (
            broker["node_id"],
            f"{broker['host']}:{broker['port']}",
            f"millstream {broker['version']}" if broker["version"] else "not Millstream",
            "controller" if broker["controller"] else "",
        )
        for broker in facts["brokers"]
    ]
    print_table(("broker", "address", "version", ""), rows, numbers=("broker",))
