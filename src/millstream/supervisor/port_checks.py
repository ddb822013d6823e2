"""Checks that the ports of a process can be bound, before it starts.

The gateway is a process of its own, which would fail only after the broker is ready. These checks make the start fail
instead, with the name of the setting.
"""

import socket
import time
from collections.abc import Mapping

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import address_unavailable
from millstream.process.gateway_packages import missing_gateway_packages
from millstream.process.settings import PORT_OFF

PORT_FIELDS = ("kafka_port", "operator_port", "http_port", "grpc_port")
GATEWAY_FIELDS = ("http_port", "grpc_port")
PATIENCE_S = 2.0
"""How long a port may stay in use. The kernel ends a gateway with its killed parent, but not in the same moment."""

_AGAIN_S = 0.05


def configured_ports(settings: BrokerSettings) -> Mapping[str, int]:
    """Returns the fixed ports by setting: neither switched off nor chosen by the system."""
    ports = {name: getattr(settings, name) for name in PORT_FIELDS}
    return {name: port for name, port in ports.items() if port not in (PORT_OFF, 0)}


def gateway_ports(settings: BrokerSettings) -> Mapping[str, int]:
    """Returns the fixed ports of the gateway that `millstream serve` starts: none if it is not installed."""
    ports = {name: port for name, port in configured_ports(settings).items() if name in GATEWAY_FIELDS}
    return {} if not ports or missing_gateway_packages() else ports


def check_distinct_ports(settings: BrokerSettings) -> None:
    """Raises INVALID_SETTING if two settings name the same port."""
    names: dict[int, str] = {}
    for name, port in configured_ports(settings).items():
        if port in names:
            text = f"{names[port]} and {name} are both {port}; choose another port with --{name.replace('_', '-')}"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        names[port] = name


def check_ports(host: str, ports: Mapping[str, int], patience_s: float = PATIENCE_S) -> None:
    """Raises ADDRESS_UNAVAILABLE, with the setting, if a port cannot be bound within `patience_s` (blocking)."""
    until_s = time.monotonic() + patience_s
    for name, port in ports.items():
        while (problem := _bind_problem(host, port)) is not None:
            if time.monotonic() >= until_s:
                raise address_unavailable(name, host, port, problem) from problem
            time.sleep(_AGAIN_S)


def _bind_problem(host: str, port: int) -> OSError | None:
    """Binds the port on each address of the host, as the listener will, and releases it. Returns the failure."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in {row[4]: row for row in found}.values():
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as problem:
        return problem
    return None
