"""What a broker loads until it is ready: no more than it needs, since that is most of the time a start takes."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

WAIT_S = 60.0
NO_GATEWAY = ("--http-port", "off", "--grpc-port", "off")
MODULES_MAX = 509
"""Of all kinds, most of them Python's own; with the dozen that supervise other processes, which are loaded once the
broker is ready. A start that needs more raises it and says why: the last dozen are packages, empty but for a docstring,
which came with sub-folders."""
PROGRAM = """
import atexit, gc, json, sys
from millstream.cli.main import main
atexit.register(lambda: json.dump({"modules": sorted(sys.modules), "collects": gc.isenabled()}, sys.stderr))
main()
"""
HEAVY = (
    *("typer", "click", "rich", "argparse", "dataclasses", "difflib", "tomllib"),
    *("kafka", "pyarrow", "re2", "prometheus_client"),
    *("importlib.metadata", "email", "http", "urllib.request", "zipfile", "unittest", "multiprocessing"),
)


class Loaded(Struct):
    modules: list[str]
    collects: bool


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """What a broker says of itself that was ready and is stopped again."""
    data: Path = tmp_path_factory.mktemp("data")
    flags = ["--data", str(data), "--kafka-port", "0", "--operator-port", "0", *NO_GATEWAY, "--log-level", "error"]
    command = [sys.executable, "-c", PROGRAM, "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is ready on" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    return msgspec.json.decode(told, type=Loaded)


@pytest.mark.parametrize("heavy", HEAVY)
def test_a_broker_starts_without(heavy: str, loaded: Loaded) -> None:
    assert heavy not in loaded.modules


def test_a_broker_loads_no_more_modules_than_it_has_to(loaded: Loaded) -> None:
    assert len(loaded.modules) <= MODULES_MAX, loaded.modules


def test_a_broker_that_runs_collects_garbage_again(loaded: Loaded) -> None:
    assert loaded.collects
