"""The fixtures as somebody else's test suite gets them: by installing Penstock, and nothing more."""

import subprocess
import sys
from pathlib import Path

SUITE = """
from confluent_kafka import Producer


def put(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("t", "v")
    assert producer.flush(60) == 0


def test_own(penstock_broker):
    put(penstock_broker.bootstrap)


def test_shared(penstock_bootstrap):
    put(penstock_bootstrap)


def test_process(penstock_process):
    put(penstock_process.bootstrap)
    penstock_process.kill()
    penstock_process.start()
    put(penstock_process.bootstrap)
"""


def test_a_suite_that_knows_nothing_of_penstock_can_use_its_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr


def test_the_plugin_costs_a_run_that_does_not_use_it_next_to_nothing(tmp_path: Path) -> None:
    script = "import sys, penstock.testing.plugin; print('penstock.node.node' in sys.modules, 'uvloop' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True)
    assert run.stdout.split() == ["False", "False"]
