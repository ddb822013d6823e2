"""Runs every example of the guides in order, against a broker that is started as the README describes.

Console blocks contain commands (`$ …`) and their output. The text block after a Python block is its output. The
addresses on the pages (ports 9092 and 8080, ./millstream-data) are replaced by those of the test's broker. Message
timestamps are not compared; everything else is.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/kafka-clients.md",
    "docs/command-line.md",
    "docs/sdk.md",
    "docs/producing.md",
    "docs/consuming.md",
    "docs/positions.md",
    "docs/message-ids.md",
    "docs/from-confluent-kafka.md",
    "docs/delivery-guarantees.md",
    "docs/error-handling.md",
    "docs/faq.md",
    "docs/web-api.md",
    "docs/gateway.md",
    "docs/topics.md",
]
COMMAND_PAGES = ["docs/performance.md"]
"""Pages whose commands print figures that differ between runs."""

WAIT_S = 100.0

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_READY = re.compile(r"is ready on 127\.0\.0\.1:(\d+) ")
_GATEWAY = re.compile(r"gateway is ready: web API on http://127\.0\.0\.1:(\d+)$")
_TIME = re.compile(r'"timestamp":\d+')


class Example(NamedTuple):
    """A command or program to run, and its expected output."""

    language: str
    source: str
    output: str


def examples(text: str) -> list[Example]:
    """The runnable blocks of a page, in order."""
    blocks = _BLOCK.findall(text)
    found: list[Example] = []
    for number, (language, body) in enumerate(blocks):
        if language == "console":
            found += [Example("sh", command, output) for command, output in _commands(body)]
        elif language == "python":
            behind = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            found.append(Example("python", body, behind[1] if behind[0] == "text" else ""))
    return found


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def environment() -> dict[str, str]:
    """This process's environment with the project's commands on the PATH, without settings of other brokers."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MILLSTREAM_") and name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    }
    return inherited | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Started(NamedTuple):
    """A broker that `make run` has started."""

    port: str
    http_port: str
    data: str

    def within(self, text: str) -> str:
        """Replace the addresses on a page by those of this broker."""
        text = text.replace("9092", self.port).replace("localhost:8080", f"localhost:{self.http_port}")
        return text.replace("./millstream-data", self.data)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Started]:
    arguments = f"ARGS=--data {tmp_path / 'data'} --kafka-port 0 --operator-port off --http-port 0 --grpc-port off"
    with subprocess.Popen(
        ["make", "--silent", "run", arguments],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            ready = next((match for line in process.stdout if (match := _READY.search(line))), None)
            assert ready, "the broker ended before it was ready"
            gateway = next((match for line in process.stdout if (match := _GATEWAY.search(line))), None)
            assert gateway, "the broker ended before its gateway was ready"
            yield Started(ready[1], gateway[1], str(tmp_path / "data"))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=WAIT_S)


def run(example: Example, broker: Started) -> str:
    source = broker.within(example.source)
    command = ["bash", "-euo", "pipefail", "-c", source] if example.language == "sh" else [sys.executable, "-c", source]
    ours = {
        "MILLSTREAM_BOOTSTRAP": f"127.0.0.1:{broker.port}",
        "MILLSTREAM_CLIENT_CONFIG": f"{broker.data}.contexts.toml",
    }
    settings = environment() | ours
    ended = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 0, f"{example.source}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_example_gives_the_documented_output(page: str, broker: Started) -> None:
    found = examples((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for example in found:
        assert trimmed(run(example, broker)) == trimmed(broker.within(example.output)), example.source


@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_every_command_of_a_page_succeeds(page: str, broker: Started) -> None:
    blocks = [
        source for language, source in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if language == "sh"
    ]
    assert blocks
    for source in blocks:
        assert run(Example("sh", source, ""), broker)


def trimmed(text: str) -> list[str]:
    """Strip trailing blanks, which tables in output have and pages must not have."""
    return [_TIME.sub('"timestamp":0', line.rstrip()) for line in text.splitlines()]


def test_make_targets_named_in_the_readme_exist() -> None:
    named = set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {"run", "test", "check"} <= named
    assert named <= targets
