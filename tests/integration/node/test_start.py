"""What a broker loads until it is ready: no more than it needs, since that is most of the time a start takes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WAIT_S = 60.0
MODULES_MAX = 420
"""Of all kinds, most of them Python's own. A start that needs more raises it and says why."""
PROGRAM = """
import atexit, json, sys
from penstock.cli.main import main
atexit.register(lambda: json.dump(sorted(sys.modules), sys.stderr))
main()
"""
HEAVY = (
    *("typer", "click", "rich", "argparse", "difflib", "tomllib"),
    *("kafka", "pyarrow", "re2", "prometheus_client"),
    *("importlib.metadata", "email", "http", "urllib.request", "zipfile", "unittest", "multiprocessing"),
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The modules that a broker has loaded when it was ready and is stopped again."""
    data: Path = tmp_path_factory.mktemp("data")
    flags = ["--data", str(data), "--kafka-port", "0", "--http-port", "0", "--log-level", "error"]
    command = [sys.executable, "-c", PROGRAM, "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is ready on" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    modules: list[str] = json.loads(told)
    return modules


@pytest.mark.parametrize("heavy", HEAVY)
def test_a_broker_starts_without(heavy: str, loaded: list[str]) -> None:
    assert heavy not in loaded


def test_a_broker_loads_no_more_modules_than_it_has_to(loaded: list[str]) -> None:
    assert len(loaded) <= MODULES_MAX, loaded
