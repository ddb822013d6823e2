"""Prepares the start of the gateway before the broker is ready: checks its ports, and reports it as starting."""

import os
from collections.abc import Sequence
from functools import partial

from millstream.node.node import Node
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import reachable_host
from millstream.process.findings import Finding
from millstream.process.parent_watch import PARENT_VARIABLE
from millstream.process.settings import PORT_OFF
from millstream.process.start_checks.ports import check_ports
from millstream.seams.workers import Workers
from millstream.supervisor.port_checks import gateway_ports

STARTING = Finding("the gateway is starting; the web API and gRPC do not answer yet", blocks_ready=True)


def runs_gateway(settings: BrokerSettings) -> bool:
    """True if this process starts a gateway. The broker of a local cluster starts none."""
    return PARENT_VARIABLE not in os.environ and (settings.http_port, settings.grpc_port) != (PORT_OFF, PORT_OFF)


def gateway_command(settings: BrokerSettings, kafka_port: int) -> list[str]:
    """Returns the command line of the gateway of this broker, which listens on `kafka_port`."""
    from millstream.supervisor.children import millstream_command  # Only now, so that the broker is ready sooner.

    return millstream_command(
        "gateway",
        *("--bootstrap", f"{reachable_host(settings.host)}:{kafka_port}"),
        *("--host", settings.host),
        *("--http-port", str(settings.http_port)),
        *("--grpc-port", str(settings.grpc_port)),
        *("--log-level", settings.log_level),
        *("--log-format", settings.log_format),
    )


async def prepare_gateway(settings: BrokerSettings, node: Node, workers: Workers) -> None:
    """Makes the node not ready until the gateway is. Raises ADDRESS_UNAVAILABLE if a port of the gateway is in use."""
    if not runs_gateway(settings):
        return
    node.watch_children(gateway_starting)
    if ports := gateway_ports(settings):
        await workers.run(partial(check_ports, settings.host, ports))


def gateway_starting() -> Sequence[Finding]:
    return (STARTING,)
