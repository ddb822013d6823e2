"""Tests the gateway that `millstream serve` runs: it restarts after a crash and ends with its broker."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.gateways.processes import WAIT_S, ask, put, values
from millstream.sdk.aio.client import connect_async
from millstream.testing.real_broker import RealBroker


def children(pid: int) -> list[int]:
    """The running child processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (state := _state(int(entry.name))) is not None and state[1] == pid:
            found.append(int(entry.name))
    return found


def _state(pid: int) -> tuple[str, int] | None:
    """A process's state and parent; None if it is gone or a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (state, int(parent))


def until(what: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's timeout bounds it."""
    while not what():
        time.sleep(0.01)


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), WAIT_S).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def url_of(broker: RealBroker) -> str:
    return f"http://127.0.0.1:{broker.http_port}"


def test_the_service_map_lists_the_gateway_that_serve_starts(tmp_path: Path) -> None:
    async def kinds(broker: RealBroker) -> dict[str, int]:
        async with await connect_async(broker.bootstrap) as client:
            return {service.kind: service.port for service in (await client.service_map()).services}

    with RealBroker(tmp_path / "data", gateway=True) as broker:
        assert put(url_of(broker), "orders", "one", "two").status == 200
        assert values(url_of(broker), "orders") == ["one", "two"]
        until(lambda: "grpc" in asyncio.run(kinds(broker)))
        told = asyncio.run(kinds(broker))
        assert (told["http"], told["grpc"]) == (broker.http_port, broker.grpc_port)
        assert broker.stop() == 0
        said = broker.log_text()
    assert "Traceback" not in said
    assert "error" not in said


def test_a_killed_gateway_is_restarted(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        put(url_of(broker), "orders", "one")
        (first,) = children(broker.pid)
        os.kill(first, signal.SIGKILL)
        broker.wait_gateway()
        assert children(broker.pid) != [first]
        assert values(url_of(broker), "orders") == ["one"]
        assert "child exited, restarting child=gateway code=-9" in broker.log_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_processes_end_when_the_broker_is_killed_or_terminated(tmp_path: Path, number: signal.Signals) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        assert ask(f"{url_of(broker)}/cluster", {"name": "further", "brokers": 2}).status == 201
        started = children(broker.pid)
        assert len(started) == 3
        broker.signal(number)
        broker.wait_ended()
        until(lambda: all(_state(pid) is None for pid in started))
        until(lambda: _refuses(broker.http_port))  # A dead process' last threads may hold its sockets a moment longer.


def test_a_port_in_use_stops_only_the_gateway_from_starting(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "first", gateway=True) as first:
        taken = ["--http-port", str(first.http_port)]
        with RealBroker(tmp_path / "second", extra_args=taken) as second:
            until(lambda: "choose another with --http-port" in second.log_text())
            first.stop()
            second.wait_gateway()
            second.http_port = first.http_port
            assert put(url_of(second), "orders", "one").status == 200


def test_a_missing_gateway_extra_is_reported_with_the_install_command(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['starlette'] = None\n"
        "from millstream.cli.main import main\n"
        "sys.argv = ['millstream', 'gateway', '--http-port', '0']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 8
    assert ended.stderr.splitlines() == [
        "millstream: packages of the gateway are not installed (starlette); "
        "install them with: pip install 'millstream[gateway]'"
    ]
