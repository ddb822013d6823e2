"""Starts a gateway on free ports, as users run it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Running(NamedTuple):
    """Process id of the gateway, and the ports of its interfaces."""

    pid: int
    ports: tuple[int, ...]


@contextmanager
def gateway(bootstrap: str, *interfaces: str) -> Iterator[Running]:
    """Runs a gateway with these interfaces (`http`, `grpc`) only."""
    command = [sys.executable, "-m", "millstream.cli", "gateway", "--bootstrap", bootstrap]
    for name in ("http", "grpc"):
        command += [f"--{name}-port", "0" if name in interfaces else "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = re.findall(rb"on \S+:(\d+)", process.stdout.readline())
            assert len(found) == len(interfaces), "the gateway did not print its ports"
            yield Running(process.pid, tuple(map(int, found)))
        finally:
            process.terminate()
