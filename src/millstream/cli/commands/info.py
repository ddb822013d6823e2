"""Implements `millstream info`, which shows the local installation, and version and features of the broker."""

import platform
import sys
from typing import TYPE_CHECKING, Any

import typer

from millstream import __version__
from millstream.cli.failures import failures_explained
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ShortTimeout
from millstream.cli.output import print_json, print_line
from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession


def info(
    context: typer.Context,
    timeout: ShortTimeout = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show versions and features of the local installation and of the broker.

    If no broker can be reached, it still shows the local installation, and fails only if a broker was named.
    """
    with failures_explained(as_json):
        local = _local_facts()
        problem: MillstreamError | None = None
        broker: dict[str, Any] = {}
        try:
            from millstream.cli.session import connected

            with connected(bootstrap, timeout) as session:
                broker = _broker_facts(session, timeout)
        except MillstreamError as error:
            problem = error
            broker = {"error": error.code.name, "message": error.detail}
        if as_json:
            print_json({"local": local, "broker": broker})
        else:
            _print_facts("This machine", local)
            _print_facts(f"Broker at {bootstrap}", broker)
        source = context.get_parameter_source("bootstrap")
        is_named = bootstrap != DEFAULT_BOOTSTRAP or (source is not None and source.name != "DEFAULT")
        if problem is not None and is_named:
            raise problem


def _local_facts() -> dict[str, Any]:
    from millstream.records.compiled import COMPILED

    return {
        "millstream": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "codec": "compiled" if COMPILED else "plain Python (slower; install a C compiler and reinstall)",
        "codec_compiled": COMPILED,
        "event_loop": "uvloop" if _has_uvloop() else "asyncio (slower; install uvloop)",
    }


def _has_uvloop() -> bool:
    import importlib.util

    return importlib.util.find_spec("uvloop") is not None


def _broker_facts(session: "CommandSession", timeout_s: float) -> dict[str, Any]:
    view = session.run(session.client.metadata([], timeout_s=timeout_s))
    facts: dict[str, Any] = {
        "cluster_id": view.cluster_id,
        "brokers": [f"{broker.node_id} at {broker.host}:{broker.port}" for broker in view.brokers.values()],
    }
    try:
        answer = session.run(session.client.info(timeout_s=timeout_s))
    except MillstreamError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return facts | {"software": "a Kafka broker that is not Millstream"}
    broker = answer.broker
    return facts | {
        "node_id": broker.node_id,
        "software": f"millstream {broker.version}",
        "version": broker.version,
        "client_versions": f"{broker.client_version_min} to {broker.client_version_max}",
        "server_time_ms": broker.server_time_ms,
        "drift_ms": answer.drift_ms,
        "features": dict(broker.features),
        **({"warning": broker.warning} if broker.warning else {}),
    }


_LABELS = {
    "millstream": "millstream",
    "python": "Python",
    "platform": "platform",
    "codec": "record codec",
    "event_loop": "event loop",
    "cluster_id": "cluster",
    "brokers": "brokers",
    "node_id": "node",
    "software": "software",
    "client_versions": "works with SDK",
    "drift_ms": "local clock ahead by",
    "features": "features",
    "warning": "warning",
    "message": "not reached",
}


def _print_facts(title: str, facts: dict[str, Any]) -> None:
    print_line(title)
    for name, label in _LABELS.items():
        value = facts.get(name)
        if value in (None, {}, []):
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, list):
            value = ", ".join(value)
        elif name == "drift_ms":
            value = f"{value} ms"
        print_line(f"  {label:<21} {value}")
    sys.stdout.flush()
