"""Checks that the ports of a process can be bound, before it starts."""

import socket
import time
from collections.abc import Mapping

from millstream.process.addresses import address_unavailable

PATIENCE_S = 2.0
"""The time that a port gets to become free. After a kill of its parent, a gateway ends a moment later."""

_AGAIN_S = 0.05


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
