"""`millstream cluster create` and what follows it: clusters that a `millstream serve` of this machine runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.confirmation import ask
from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import PARTITIONS_MAX, AsJson, Yes
from millstream.cli.output import counted, print_json, print_line, print_table
from millstream.model.units import read_duration_ms, read_size_bytes

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
_PATIENCE_S = 2.0
"""A `millstream serve` that has just said that it is ready takes no longer to be asked for clusters."""


def create(
    name: ClusterName,
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers it has.")] = 3,
    log_directories: Annotated[
        list[str] | None,
        typer.Option("--log-directory", metavar="DIRECTORY", help="Inside its own: one for all, or one each."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="Of topics that do not say.")
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Age at which messages go, such as 3d.")
    ] = None,
    retention_size: Annotated[
        str | None, typer.Option("--retention-size", metavar="SIZE", help="Size a partition is kept to, such as 1GiB.")
    ] = None,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Make a cluster of brokers on this machine, run by the `millstream serve` there."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest, NewCluster

        new = NewCluster(
            name,
            brokers,
            tuple(log_directories or ()),
            partitions,
            _read(retention, "--retention", read_duration_ms),
            _read(retention_size, "--retention-size", read_size_bytes),
        )
        (made,) = _ask(data, ControlRequest("create", cluster=new))
        _tell(made, f"Made cluster {name} with {counted(brokers, 'broker')}: {_bootstrap(made)}", as_json)


def list_clusters(data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """List the clusters that were made on this machine, and their brokers."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        found = _ask(data, ControlRequest("list"))
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
    """Start a cluster that was stopped."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        (started,) = _ask(data, ControlRequest("start", name))
        _tell(started, f"Started cluster {name}: {_bootstrap(started)}", as_json)


def stop(name: ClusterName, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Stop a cluster's brokers, until it is started by name."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        (stopped,) = _ask(data, ControlRequest("stop", name))
        _tell(stopped, f"Stopped cluster {name}.", as_json)


def delete(name: ClusterName, yes: Yes = False, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Delete a cluster with all its data."""
    with failures_explained(as_json):
        from millstream.process.control_protocol import ControlRequest

        if not yes:
            ask(f"delete cluster {name}", f"Delete cluster {name} with all its messages?", as_json=as_json)
        (deleted,) = _ask(data, ControlRequest("delete", name))
        _tell(deleted, f"Deleted cluster {name}.", as_json)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(create)
    app.command("list")(list_clusters)
    app.command()(start)
    app.command()(stop)
    app.command()(delete)


def _ask(data: Path, request: "ControlRequest") -> "tuple[ClusterFacts, ...]":
    import asyncio

    from millstream.process.control_protocol import SOCKET_NAME, Control

    return asyncio.run(Control(data / SOCKET_NAME, _PATIENCE_S).ask(request))


def _read(text: str | None, flag: str, read: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else read(text)
    except ValueError as problem:
        raise usage_error(f"{flag} {text!r}: {problem}") from None


def _bootstrap(cluster: "ClusterFacts") -> str:
    return ",".join(broker.address for broker in cluster.brokers)


def _state(cluster: "ClusterFacts", broker: "BrokerFacts") -> str:
    if broker.is_running:
        return "runs"
    if broker.problem:
        return f"does not run, and is started again: {broker.problem}"
    return "stopped" if cluster.is_stopped else "is being started"


def _tell(cluster: "ClusterFacts", text: str, as_json: bool) -> None:
    if as_json:
        print_json(_document(cluster))
    else:
        print_line(text)


def _document(cluster: "ClusterFacts") -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(cluster)
    return document
