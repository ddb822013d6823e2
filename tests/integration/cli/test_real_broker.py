"""Tests the helper that starts brokers: it keeps ports and data over restarts and leaves no process behind."""

import os
import signal
from pathlib import Path

import pytest

from builders.command import Command
from millstream.testing.real_broker import BrokerFailedError, RealBroker


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_keeps_its_ports_and_its_data_over_restarts(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        ports = (broker.port, broker.operator_port)
        assert all(ports)
        Command(broker.bootstrap).succeed("put", "t", "message")
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.stop() == 0
        broker.restart()
        assert (broker.port, broker.operator_port) == ports
        assert Command(broker.bootstrap).succeed("get", "t").lines == [b"message"]
        assert broker.log_text().count("is ready on") == 3


def test_no_process_is_left_when_a_test_fails(tmp_path: Path) -> None:
    pids = []

    def failing() -> None:
        with RealBroker(tmp_path / "data") as broker:
            pids.append(broker.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not is_alive(pids[0])


def test_a_broker_that_cannot_start_reports_why_and_leaves_no_process(tmp_path: Path) -> None:
    broker = RealBroker(tmp_path / "data", extra_args=["--flush", "sometimes"])
    with pytest.raises(BrokerFailedError, match="sometimes"):
        broker.start()
    assert not broker.is_running
    with pytest.raises(BrokerFailedError):
        broker.signal(signal.SIGTERM)


def test_settings_can_be_given_as_flags_and_environment(tmp_path: Path) -> None:
    broker = RealBroker(
        tmp_path / "data", flush="os", extra_args=["--node-id", "5"], env={"MILLSTREAM_AUTO_CREATE": "false"}
    )
    with broker:
        ended = Command(broker.bootstrap).run("put", "t", "message")
        assert (ended.code, "no such topic" in ended.errors) == (1, True)
        (document,) = Command(broker.bootstrap).succeed("info", "--json").documents
        assert document["broker"]["node_id"] == 5
