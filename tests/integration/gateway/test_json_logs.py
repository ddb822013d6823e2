"""Tests that a broker and its gateway log one JSON object per line and nothing else."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builders.gateways.processes import WAIT_S, ask, put, values
from millstream.testing.real_broker import RealBroker

JSON = ("--log-format", "json")


class SplitBroker(RealBroker):
    """A broker whose standard error goes to a file of its own."""

    @property
    def errors(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".err")

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", 'exec "$@" 2>>"$0"', str(self.errors), *super().command()]


def rows_of(text: str) -> list[dict[str, Any]]:
    """Parse each line, and check the keys that it begins with."""
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        assert list(row)[:3] == ["time", "level", "event"], row
    return rows


def garbage(port: int) -> None:
    """Send bytes of no protocol, and read until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(b"\xff" * 64 + b"\r\n\r\n")
        while connection.recv(1000):
            pass


def test_each_line_of_broker_and_gateway_is_one_json_object(tmp_path: Path) -> None:
    with SplitBroker(tmp_path / "data", extra_args=(*JSON, "--log-level", "debug"), gateway=True) as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        assert put(url, "orders", "precious").status == 200
        assert values(url, "orders") == ["precious"]
        assert ask(f"{url}/events", {"topic": 5}).status == 422
        assert ask(f"{url}/cluster", {"name": "further", "brokers": 1}).status == 201
        assert ask(f"{url}/v1/clusters/further", method="DELETE").status == 204
        for port in (broker.port, broker.http_port, broker.grpc_port):
            garbage(port)
        (gateway,) = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
        os.kill(int(gateway), signal.SIGKILL)
        broker.wait_gateway()
        broker.kill()
        broker.start()
        assert broker.stop() == 0
        text = broker.errors.read_text()
    rows = rows_of(text)
    assert "precious" not in text
    events = {row["event"] for row in rows}
    assert {"setting applied", "topic created", "request handled", "cluster created", "cluster deleted"} <= events
    assert {"child exited, restarting", "directory recovered", "broker stopped", "gateway stopped"} <= events
    (created,) = [row for row in rows if row["event"] == "topic created" and row["topic"] == "orders"]
    for change in ("created", "deleted"):
        (line,) = [row for row in rows if row["event"] == f"cluster {change}"]
        assert (line["cluster"], line["peer"], line["client_id"]) == ("further", "127.0.0.1", "millstream-gateway")
    host, _, port = created["peer"].rpartition(":")
    assert (host, port.isdecimal(), bool(created["client_id"])) == ("127.0.0.1", True, True)
    cut = [row for row in rows if row["event"].startswith("connection cut off")]
    assert cut[0]["peer"].startswith("127.0.0.1:")


def test_a_failed_start_with_json_logs_is_one_json_object(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "first", extra_args=JSON) as first:
        second = RealBroker(tmp_path / "second", extra_args=(*JSON, "--kafka-port", str(first.port)))
        second.launch()
        assert second.wait_ended() != 0
        rows = rows_of(second.log_text())
    assert rows[-1]["event"] == "process failed"
    assert "in use" in rows[-1]["error"]


@pytest.mark.parametrize(
    ("arguments", "variables", "reason"),
    [
        (("serve", *JSON, "--kafka-port", "many"), {}, "kafka_port = 'many' (--kafka-port): expected a whole number"),
        (("serve", "--log-format=json", "--kafka-prot", "1"), {}, "No such option: --kafka-prot"),
        (("serve", "--config", "missing.toml", *JSON), {}, "cannot read the settings file missing.toml"),
        (("serve",), {"MILLSTREAM_LOG_FORMAT": "json", "MILLSTREAM_HOTS": "x"}, "did you mean MILLSTREAM_HOST?"),
        (("gateway", *JSON), {"MILLSTREAM_GATEWAY_HTTP_PORT": "many"}, "http_port = 'many' (environment variable"),
        (("gateway", *JSON, "--http-port", "off", "--grpc-port", "off"), {}, "http_port and grpc_port are both off"),
    ],
)
def test_wrong_settings_with_json_logs_are_one_json_object(
    arguments: Sequence[str], variables: Mapping[str, str], reason: str, tmp_path: Path
) -> None:
    ended = run(arguments, variables, tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    row = rows_of(ended.stderr)[-1]
    assert row["event"] == "process failed"
    assert reason in row["error"]


def test_the_settings_file_selects_the_format_of_its_own_errors(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text('log_format = "json"\nkafka_prot = 1\n')
    ended = run(("serve", "--config", "broker.toml"), {}, tmp_path)
    assert ended.returncode == 2
    (row,) = rows_of(ended.stderr)
    assert "there is no setting 'kafka_prot'" in row["error"]


def test_wrong_settings_with_console_logs_are_plain_text(tmp_path: Path) -> None:
    ended = run(("serve", "--kafka-port", "many"), {}, tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("millstream: kafka_port = 'many' (--kafka-port): ")


def test_a_gateway_with_wrong_settings_keeps_the_json_stream_of_serve(tmp_path: Path) -> None:
    environment = {"MILLSTREAM_GATEWAY_DRAIN_MS": "soon"}
    with SplitBroker(tmp_path / "data", extra_args=(*JSON, "--http-port", "0"), env=environment) as broker:
        while "child exited, not restarting" not in broker.errors.read_text():
            time.sleep(0.01)
        assert broker.stop() == 0
        rows = rows_of(broker.errors.read_text())
    (failed,) = [row for row in rows if row["event"] == "process failed"]
    assert "drain_ms = 'soon' (environment variable MILLSTREAM_GATEWAY_DRAIN_MS)" in failed["error"]


def run(arguments: Sequence[str], variables: Mapping[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    command = [sys.executable, "-m", "millstream.cli", *arguments]
    environment = {**inherited, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment, cwd=cwd)
