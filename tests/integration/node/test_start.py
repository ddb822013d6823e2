"""Limits the modules that a broker loads until it is ready, because loading is most of the start time."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

WAIT_S = 60.0
NO_GATEWAY = ("--http-port", "off", "--grpc-port", "off")
MODULES_MAX = 620
"""The maximum number of loaded modules, most of which are Python's own.

It includes about a dozen modules that supervise other processes, which are loaded once the broker is ready. A change
that needs more raises the limit and says why. The last dozen belong to member watches and to coordinators and logs that
own their state, to the checks of ports, to the health of the gateway, to the service manager, and to the metrics of
requests, connections and partitions, and of topics, disks and the lag of groups.
"""
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
    """The modules and the garbage collection state of a broker that was ready and then stopped."""
    data: Path = tmp_path_factory.mktemp("data")
    flags = ["--data", str(data), "--kafka-port", "0", "--operator-port", "0", *NO_GATEWAY, "--log-level", "error"]
    command = [sys.executable, "-c", PROGRAM, "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is ready on" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, output = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    return msgspec.json.decode(output, type=Loaded)


@pytest.mark.parametrize("heavy", HEAVY)
def test_a_broker_starts_without_loading_heavy_modules(heavy: str, loaded: Loaded) -> None:
    assert heavy not in loaded.modules


def test_a_broker_start_loads_a_limited_number_of_modules(loaded: Loaded) -> None:
    assert len(loaded.modules) <= MODULES_MAX, loaded.modules


def test_garbage_collection_is_enabled_after_the_start(loaded: Loaded) -> None:
    assert loaded.collects
