"""Runs every example against the real process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from millstream.testing import RealBroker

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 60
WAIT_S = 100.0

WORDS = "be 2\nis 1\nnot 1\nor 1\nquestion 1\nsleep 1\nthat 1\nthe 1\nto 3\n"
PRINTED = {
    "hello.py": (
        "stored at PutResult(topic='hello', partition=0, offset=0)\n0 Hello, world!\n1 How are you?\n2 Goodbye!\n"
    ),
    "workers.py": "a worker was killed in the middle of its work\nall 60 jobs are done\n",
    "replay.py": "since 12:30:\n  visit at 12:30\n  visit at 12:40\n  visit at 12:50\n"
    "from 12:10 to 12:25:\n  visit at 12:10\n  visit at 12:20\n"
    "in the last hour:\n  0 visits\n",
    "arrow_tables.py": "100000 rows are stored\n"
    "sensor 0: 48.0\nsensor 1: 49.0\nsensor 2: 50.0\nsensor 3: 51.0\nhighest: 99\n",
    "from_confluent_kafka/before.py": WORDS,
    "from_confluent_kafka/after.py": WORDS,
}
SERVICE = "service.py"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # The session timeout after which a killed worker is removed.
    quick = ["--consumer-session-timeout-ms", "3s", "--consumer-heartbeat-interval-ms", "500ms"]
    with RealBroker(tmp_path_factory.mktemp("examples") / "data", extra_args=quick) as broker:
        yield broker.bootstrap


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def printed(name: str, *arguments: str) -> str:
    ended = subprocess.run(command(name, *arguments), capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def test_every_example_is_tested_and_short() -> None:
    found = {str(path.relative_to(EXAMPLES)): path for path in EXAMPLES.glob("**/*.py")}
    assert set(found) == {*PRINTED, SERVICE}
    assert [
        name for name, path in found.items() if len(path.read_text(encoding="utf-8").splitlines()) > LINES_MAX
    ] == []


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_the_expected_output(name: str, bootstrap: str) -> None:
    assert printed(name, bootstrap) == PRINTED[name]


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"hello.py"}))
def test_an_example_can_be_run_repeatedly(name: str, bootstrap: str) -> None:
    for _ in range(2):
        assert printed(name, bootstrap) == PRINTED[name]


def test_a_migrated_program_continues_at_the_offsets_of_its_group(bootstrap: str) -> None:
    for name in ("before", "after", "before"):
        assert printed(f"from_confluent_kafka/{name}.py", bootstrap, "moved") == WORDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_example_service_stops_cleanly_and_the_next_one_continues(number: signal.Signals, bootstrap: str) -> None:
    first = 10 * number
    for order in (first, first + 1):
        with (
            millstream.connect(bootstrap) as client,
            subprocess.Popen(command(SERVICE, bootstrap), stdout=subprocess.PIPE, text=True) as service,
        ):
            try:
                assert service.stdout is not None
                assert service.stdout.readline() == "ready\n"
                with client.producer() as producer:
                    producer.put("orders", json.dumps({"number": order, "amount": 9.5})).result()
                assert service.stdout.readline() == f"invoice for order {order}: 9.50\n"
                service.send_signal(number)
                assert service.communicate(timeout=WAIT_S)[0] == "stopped\n"
                assert service.returncode == 0
                assert client.groups.describe("billing").members == ()
            finally:
                service.kill()
