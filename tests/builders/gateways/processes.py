"""Starts real gateway processes, and sends HTTP requests to them."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from types import MappingProxyType
from typing import Any

WAIT_S = 60.0
_READY = re.compile(rb"gateway is ready: web API on http://\S+?:(\d+)(?:, gRPC on \S+:(\d+))?\n")


class RealGateway:
    """`millstream gateway` as a child process that has reported readiness."""

    def __init__(self, process: "subprocess.Popen[bytes]", http_port: int, grpc_port: int) -> None:
        self.process = process
        self.http_port = http_port
        self.grpc_port = grpc_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def stop(self) -> int:
        """Stop the process like an operator, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@contextmanager
def gateway(bootstrap: str, *flags: str, grpc: bool = False) -> Iterator[RealGateway]:
    """Start a gateway on free ports; it is stopped in any case."""
    ports = ("--http-port", "0", "--grpc-port", "0" if grpc else "off")
    command = [sys.executable, "-m", "millstream.cli", "gateway", "--bootstrap", bootstrap, *ports, *flags]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=inherited) as process:
        try:
            ready = _heard(process)
            yield RealGateway(process, int(ready[1]), int(ready[2] or 0))
        finally:
            process.kill()


def _heard(process: "subprocess.Popen[bytes]") -> "re.Match[bytes]":
    assert process.stdout is not None
    said = b""
    end_s = time.monotonic() + WAIT_S
    while (found := _READY.search(said)) is None:
        readable, _, _ = select.select([process.stdout], [], [], end_s - time.monotonic())
        piece = os.read(process.stdout.fileno(), 65536) if readable else b""
        assert piece, f"the gateway did not get ready: {said.decode()}"
        said += piece
    return found


class Answer:
    """The status and the body of a response."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str, body: object = None, method: str | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> Answer:
    """Send one request on a connection of its own; OSError if there is no response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return Answer(answer.status, answer.read(), _lower(answer.headers))
    except urllib.error.HTTPError as refused:
        with refused:
            return Answer(refused.code, refused.read(), _lower(refused.headers))


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def put(url: str, topic: str, *values: str, cluster: str = "default") -> Answer:
    events: Sequence[dict[str, str]] = [{"value": value} for value in values]
    return ask(f"{url}/events", {"topic": topic, "cluster": cluster, "events": events})


def values(url: str, topic: str, cluster: str = "default") -> list[str]:
    """Return all values of a topic."""
    answer = ask(f"{url}/events?topic={topic}&offset=beginning&wait=0&cluster={cluster}")
    assert answer.status == 200, answer.body
    return [event["value"] for event in answer.json["events"]]
