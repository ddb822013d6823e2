"""A gateway as people run it, on free ports."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Running(NamedTuple):
    """Its process, and the ports of what it serves."""

    pid: int
    ports: tuple[int, ...]


@contextmanager
def gateway(bootstrap: str, *interfaces: str) -> Iterator[Running]:
    """One with these interfaces (`http`, `grpc`) and no others."""
    command = [sys.executable, "-m", "millstream.cli", "gateway", "--bootstrap", bootstrap]
    for name in ("http", "grpc"):
        command += [f"--{name}-port", "0" if name in interfaces else "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = re.findall(rb"on \S+:(\d+)", process.stdout.readline())
            assert len(found) == len(interfaces), "the gateway did not say where it listens"
            yield Running(process.pid, tuple(map(int, found)))
        finally:
            process.terminate()
