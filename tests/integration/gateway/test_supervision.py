"""Tests the gateway that `millstream serve` runs: it restarts after a crash and ends with its broker."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
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


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port"])
def test_a_gateway_port_in_use_fails_the_start_of_serve(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = "--grpc-port" if flag == "--http-port" else "--http-port"
        command = [sys.executable, "-m", "millstream.cli", "serve", "--data", str(tmp_path / "data"), flag, str(port)]
        free = ["--kafka-port", "0", "--operator-port", "0", other, "0"]
        refused = subprocess.run([*command, *free], capture_output=True, text=True, timeout=WAIT_S)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert f"cannot listen on 127.0.0.1:{port}: " in refused.stderr
    assert f"choose another with {flag}" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_serve_is_ready_once_its_gateway_is_and_again_after_a_kill(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        until(lambda: operator_page(broker, "/ready") == (200, "ready\n"))
        (first,) = children(broker.pid)
        os.kill(first, signal.SIGKILL)
        broker.wait_gateway()
        until(lambda: operator_page(broker, "/ready") == (200, "ready\n"))
        health = json.loads(operator_page(broker, "/health")[1])
    assert (health["status"], health["problems"], health["warnings"]) == ("ok", [], [])


def test_a_hung_gateway_is_a_problem_and_not_ready_until_it_answers(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        (pid,) = children(broker.pid)
        until(lambda: operator_page(broker, "/ready") == (200, "ready\n"))
        os.kill(pid, signal.SIGSTOP)
        until(lambda: operator_page(broker, "/ready")[0] == 503)
        health = json.loads(operator_page(broker, "/health")[1])
        assert health["status"] == "degraded"
        (problem,) = health["problems"]
        assert problem.startswith("the gateway has not answered since 20")
        assert f"its process {pid} is stopped, hangs or is overloaded" in problem
        assert operator_page(broker, "/ready")[1] == f"not ready: {problem}\n"
        os.kill(pid, signal.SIGCONT)
        until(lambda: operator_page(broker, "/ready") == (200, "ready\n"))
        assert f"child does not answer pid={pid}" in broker.log_text()
        assert f"child answers again pid={pid}" in broker.log_text()


def test_a_hung_broker_of_a_local_cluster_is_a_problem(tmp_path: Path) -> None:
    def problems(broker: RealBroker) -> list[str]:
        found: list[str] = json.loads(operator_page(broker, "/health")[1])["problems"]
        return found

    with RealBroker(tmp_path / "data", gateway=True) as broker:
        assert ask(f"{url_of(broker)}/cluster", {"name": "further", "brokers": 1}).status == 201
        lock = (tmp_path / "data" / "clusters" / "further" / "broker-1" / ".lock").read_text()
        pid = int(lock.split()[0])
        os.kill(pid, signal.SIGSTOP)
        until(
            lambda: any("broker 1 of the cluster further has not answered since" in each for each in problems(broker))
        )
        assert operator_page(broker, "/ready")[0] == 200, "clients of the broker itself are served"
        os.kill(pid, signal.SIGCONT)
        until(lambda: problems(broker) == [])


def test_every_listener_beyond_loopback_is_a_warning_in_health_and_log(tmp_path: Path) -> None:
    def warnings(broker: RealBroker) -> list[str]:
        return [text.partition(" on ")[0] for text in json.loads(operator_page(broker, "/health")[1])["warnings"]]

    with RealBroker(tmp_path / "data", gateway=True, extra_args=["--host", "0.0.0.0"]) as broker:
        until(lambda: warnings(broker) == ["the Kafka port", "the operator port", "the web API", "gRPC"])
        until(lambda: ask(f"{url_of(broker)}/ready").status == 200)
        own = ask(f"{url_of(broker)}/health").json["warnings"]
        assert [text.partition(" on ")[0] for text in own] == ["the web API", "gRPC"]
        log = broker.log_text()
    for line in ('listener="the Kafka port" host=0.0.0.0', 'listener="the operator port" host=0.0.0.0'):
        assert f"listener reachable from other hosts without authentication {line}" in log


def operator_page(broker: RealBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.operator_port}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


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
