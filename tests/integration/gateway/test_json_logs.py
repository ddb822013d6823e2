"""Tests that a broker and its gateway log one JSON object per line and nothing else."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from builders.gateways.processes import ask, put, values
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
