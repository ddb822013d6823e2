"""Tests properties of `RealBroker` that other tests do not cover."""

import socket
from pathlib import Path

import pytest

from millstream.testing import RealBroker


def test_the_ports_of_a_stopped_broker_stay_reserved(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        ports = broker.port, broker.operator_port, broker.http_port, broker.grpc_port
        assert len(set(ports)) == 4
        broker.kill()
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=10)
        broker.start()
        assert (broker.port, broker.operator_port, broker.http_port, broker.grpc_port) == ports
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", broker.port))
