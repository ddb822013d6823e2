"""Checks the settings and ports of `millstream gateway` without starting it."""

import asyncio
from collections.abc import Iterator

from millstream.gateway.gateway import Gateway
from millstream.gateway.settings import GatewaySettings
from millstream.model.errors import MillstreamError
from millstream.process.exit_codes import EXIT_SETTINGS, exit_code
from millstream.process.settings import PORT_OFF
from millstream.process.start_checks.report import CheckedItem, checked_ports


def check_start(settings: GatewaySettings) -> Iterator[CheckedItem]:
    """Yield the result of each check. Settings that contradict each other end the checks. No broker is asked."""
    try:
        asyncio.run(_build(settings))
    except MillstreamError as problem:
        yield CheckedItem(f"settings: {problem.detail}", exit_code(problem))
        return
    clusters = ", ".join(("default", *settings.cluster))
    yield CheckedItem(f"settings: serves the clusters {clusters}; default is at {','.join(settings.bootstrap)}")
    given = {"http_port": settings.http_port, "grpc_port": settings.grpc_port}
    ports = {name: port for name, port in given.items() if port not in (PORT_OFF, 0)}
    if len(ports) > len(set(ports.values())):
        text = f"http_port and grpc_port are both {settings.http_port}; choose another port with --grpc-port"
        yield CheckedItem(f"settings: {text}", EXIT_SETTINGS)
    yield from checked_ports(settings.host, ports)


async def _build(settings: GatewaySettings) -> None:
    """Build the gateway, which reads all settings, and open nothing."""
    await Gateway(settings).close()
