"""Defines the sentences that health pages and tools report: problems, which degrade the health, and warnings."""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.process.addresses import is_loopback


class Finding(NamedTuple):
    """One sentence about a process. A warning does not degrade its health."""

    text: str
    is_problem: bool = True
    blocks_ready: bool = False
    """True if the process must not receive new clients while the problem lasts."""


class OpenPort(NamedTuple):
    """An open port: the name of what it serves, and its address."""

    name: str
    host: str
    port: int


def exposed(listeners: Iterable[OpenPort]) -> list[OpenPort]:
    """Returns the listeners that other hosts can reach. There is no authentication yet."""
    return [listener for listener in listeners if not is_loopback(listener.host)]


def exposure_warnings(listeners: Iterable[OpenPort]) -> list[Finding]:
    """Returns one warning for each listener that other hosts can reach."""
    return [
        Finding(
            f"{name} on {host or '*'}:{port} is reachable from other hosts without authentication: everyone who reaches"
            " it can read and change all data. Listen on 127.0.0.1, or admit only trusted hosts with a firewall.",
            is_problem=False,
        )
        for name, host, port in exposed(listeners)
    ]
