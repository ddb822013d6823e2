"""Tests the fault tests: the same load and checker must detect planted faults."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.load import create_topic, final_logs, mixed_load
from faults.proxy import CutProxy
from faults.record import SharedHistory
from faults.rounds import let_it_work
from millstream.testing.real_broker import RealBroker
from millstream.testing.simulation.checker import ViolationKind

PLANTED = Path(__file__).parent / "planted"
PROXY_HOST = "127.0.0.2"


@contextmanager
def forgetful_broker(data: Path) -> Iterator[RealBroker]:
    paths = os.pathsep.join(filter(None, [str(PLANTED), os.environ.get("PYTHONPATH")]))
    flags = ("--host", "127.0.0.1", "--advertised-host", PROXY_HOST)
    with RealBroker(data, extra_args=flags, env={"PYTHONPATH": paths}) as broker:
        yield broker


def test_cut_connections_detect_a_broker_that_forgets_producers(tmp_path: Path) -> None:
    history = SharedHistory()
    with (
        forgetful_broker(tmp_path / "data") as broker,
        CutProxy(PROXY_HOST, broker.port, "127.0.0.1") as proxy,
    ):
        through = f"{PROXY_HOST}:{broker.port}"
        partitions = create_topic(through, "forgotten", 1)
        with mixed_load(through, partitions, history):
            for _ in range(40):
                let_it_work(history, 50)
                proxy.swallow_answers()
                time.sleep(0.1)
                proxy.cut()
                found = {violation.kind for violation in history.violations(final_logs(through, partitions))}
                if ViolationKind.DOUBLED in found:
                    return
        raise AssertionError("duplicates were stored and not detected")


def test_a_log_truncated_while_the_broker_is_down_is_detected(tmp_path: Path) -> None:
    history = SharedHistory()
    with RealBroker(tmp_path / "data", flush="os") as broker:
        partitions = create_topic(broker.bootstrap, "cut", 1)
        with mixed_load(broker.bootstrap, partitions, history):
            let_it_work(history, 500)
        broker.kill()
        history.crashed()
        segment = max(broker.data_dir.rglob("*.log"), key=lambda path: path.stat().st_size)
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size - 100)
        broker.start()
        with pytest.raises(AssertionError, match="LOST"):
            history.assert_kept(final_logs(broker.bootstrap, partitions))
