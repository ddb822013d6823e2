"""Tests that the metrics of a broker show which of its child processes serve clients."""

import os
import signal
from pathlib import Path

from builders.gateways.processes import ask
from builders.local_files import wait_until
from builders.operations.operator_view import OperatorView
from millstream.testing.real_broker import RealBroker


def states(view: OperatorView) -> dict[str, float]:
    return {labels["child"]: value for labels, value in view.scrape().series("millstream_child_up")}


def test_a_stopped_child_is_down_in_the_metrics_until_it_continues(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        view = OperatorView(broker)
        assert ask(f"http://127.0.0.1:{broker.http_port}/cluster", {"name": "further", "brokers": 1}).status == 201
        both = {"gateway": 1.0, "further/broker-1": 1.0}
        wait_until(lambda: states(view) == both)
        assert view.scrape().value("millstream_problems") == 0
        lock = (tmp_path / "data" / "clusters" / "further" / "broker-1" / ".lock").read_text()
        pid = int(lock.split()[0])
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: states(view) == {**both, "further/broker-1": 0.0})
        assert view.scrape().value("millstream_problems") == 1
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: states(view) == both)


def test_a_broker_without_children_exports_no_states(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        assert states(OperatorView(broker)) == {}


def test_a_killed_gateway_is_down_in_the_metrics_until_it_serves_again(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data", gateway=True) as broker:
        view = OperatorView(broker)
        wait_until(lambda: states(view) == {"gateway": 1.0})
        os.kill(gateway_of(broker.pid), signal.SIGKILL)
        wait_until(lambda: states(view) == {"gateway": 0.0})
        broker.wait_gateway()
        wait_until(lambda: states(view) == {"gateway": 1.0})


def gateway_of(pid: int) -> int:
    """The gateway of a broker that has no other child process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
