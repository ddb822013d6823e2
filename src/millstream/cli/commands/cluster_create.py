"""Implements `millstream cluster create | list | start | stop | delete`, which manage clusters on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.confirmation import ask
from millstream.cli.failures import failures_explained
from millstream.cli.options import PARTITIONS_MAX, AsJson, Yes
from millstream.cli.output import counted, print_json, print_line, print_table
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.units import quoted, read_duration_ms, read_size_bytes

if TYPE_CHECKING:
    from millstream.process.control_protocol import BrokerFacts, ClusterFacts, ControlRequest

ClusterName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster.", show_default=False)]

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="MILLSTREAM_DATA",
        metavar="DIRECTORY",
        help="First data directory of the running `millstream serve`.",
    ),
]
DEFAULT_DATA = Path("./millstream-data")
_CLIENT_ID = "millstream-cli"
_PATIENCE_S = 2.0
"""Longest wait for the control socket, which `millstream serve` opens shortly after it reports that it is ready."""


def create(
    name: ClusterName,
    brokers: Annotated[int, typer.Option("--brokers", help="Number of brokers.")] = 3,
    log_directories: Annotated[
        list[str] | None,
        typer.Option(
            "--log-directory",
            metavar="DIRECTORY",
            help="Inside the cluster's directory: one for all brokers, or one for each.",
        ),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="Default partitions of a topic.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Default retention time, such as 3d.")
    ] = None,
    retention_size: Annotated[
        str | None, typer.Option("--retention-size", metavar="SIZE", help="Default size of a partition, such as 1GiB.")
    ] = None,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Create a cluster of brokers on this machine, as child processes of the running `millstream serve`."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest, NewCluster

        new = NewCluster(
            name,
            brokers,
            tuple(log_directories or ()),
            partitions,
            _parsed(retention, "--retention", read_duration_ms),
            _parsed(retention_size, "--retention-size", read_size_bytes),
        )
        (created,) = _send(data, ControlRequest("create", cluster=new))
        text = f"Created cluster {name} with {counted(brokers, 'broker')}: {_bootstrap(created)}"
        _print_result(created, text, as_json)


def list_clusters(data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """List the local clusters and their brokers."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        found = _send(data, ControlRequest("list"))
        if as_json:
            print_json([_document(each) for each in found])
            return
        rows = [
            (each.name, broker.node_id, broker.address, _state(each, broker))
            for each in found
            for broker in each.brokers
        ]
        print_table(("cluster", "broker", "address", "state"), rows, numbers=("broker",))


def start(name: ClusterName, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Start a stopped cluster."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        (started,) = _send(data, ControlRequest("start", name))
        _print_result(started, f"Started cluster {name}: {_bootstrap(started)}", as_json)


def stop(name: ClusterName, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Stop a cluster's brokers. The cluster stays stopped until it is started by name."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        (stopped,) = _send(data, ControlRequest("stop", name))
        _print_result(stopped, f"Stopped cluster {name}.", as_json)


def delete(name: ClusterName, yes: Yes = False, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Delete a cluster with all its data. Asks for confirmation."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        if not yes:
            ask(f"delete cluster {name}", f"Delete cluster {name} with all its messages?", as_json=as_json)
        (deleted,) = _send(data, ControlRequest("delete", name))
        _print_result(deleted, f"Deleted cluster {name}.", as_json)


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`."""
    app.command()(create)
    app.command("list")(list_clusters)
    app.command()(start)
    app.command()(stop)
    app.command()(delete)


def _send(data: Path, request: "ControlRequest") -> "tuple[ClusterFacts, ...]":
    import asyncio

    import msgspec

    from millstream.process.control_protocol import SOCKET_NAME, Control

    named = msgspec.structs.replace(request, client_id=_CLIENT_ID)
    return asyncio.run(Control(data / SOCKET_NAME, _PATIENCE_S).ask(named))


def _parsed(text: str | None, flag: str, read: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else read(text)
    except ValueError as problem:
        raise MillstreamError(ErrorCode.INVALID_CLUSTER, f"{flag}: {quoted(text)} is {problem}") from None


def _bootstrap(cluster: "ClusterFacts") -> str:
    return ",".join(broker.address for broker in cluster.brokers)


def _state(cluster: "ClusterFacts", broker: "BrokerFacts") -> str:
    if broker.is_running:
        return "running"
    if broker.problem:
        return f"restarting: {broker.problem}"
    return "stopped" if cluster.is_stopped else "starting"


def _print_result(cluster: "ClusterFacts", text: str, as_json: bool) -> None:
    if as_json:
        print_json(_document(cluster))
    else:
        print_line(text)


def _document(cluster: "ClusterFacts") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(cluster)
    return document
