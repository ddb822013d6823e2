"""Tests that each plaintext port logs a TLS client as such."""

import contextlib
import socket
import ssl
from pathlib import Path

from builders.gateways.processes import WAIT_S
from millstream.testing.real_broker import RealBroker

EVENT = "a TLS client connected to a plaintext port"


def shake_hands(port: int) -> None:
    """Connect with TLS, which fails."""
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain, contextlib.suppress(OSError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_tls_client_is_logged_on_each_plaintext_port(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        for port in (broker.port, broker.operator_port, broker.http_port):
            shake_hands(port)
        shake_hands(broker.port)  # Logged once a minute only.
        broker.stop()
        lines = [line for line in broker.log_text().splitlines() if EVENT in line]
        log = broker.log_text()
    assert len(lines) == 3, log
    assert all("peer=127.0.0.1" in line and "this port has no TLS" in line for line in lines)
    assert sum("listener=operator_port" in line for line in lines) == 1
    assert sum("listener=http_port" in line for line in lines) == 1
    assert "bad frame" not in log
