"""Runs `millstream pipeline run` as a process of its own, as users do."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark.site import LONG_S, SETTINGS, Site


class Command:
    """A running command; its output is read line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._states: dict[str, dict[str, Any]] = {}
        self.errors: list[str] = []

    def hear(self) -> None:
        """Waits for a line of standard output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        said = json.loads(line)
        if "query" in said:
            self._states[said["query"]] = said

    def states(self) -> list[dict[str, Any]]:
        """Returns the last reported state of each query."""
        return list(self._states.values())

    def hear_error(self, text: str) -> None:
        """Waits for a line of standard error that contains the text."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors.append(line.rstrip("\n"))
            if text in line:
                return
        raise AssertionError(f"never said: {text}")

    def interrupt(self) -> None:
        """Sends SIGINT to all processes of the command, as Ctrl-C does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Sends SIGTERM to the command only, as a process supervisor does."""
        self._process.terminate()

    def ended(self) -> int:
        """Returns the exit code after the command and every process that shares its output have ended."""
        _, errors = self._process.communicate(timeout=LONG_S)
        self.errors += errors.splitlines()
        return self._process.returncode


@contextmanager
def running(site: Site, file: Path, *options: str) -> Iterator[Command]:
    """Starts the command. All processes that it has started are killed at the end of the block."""
    settings = [each for name, value in SETTINGS.items() for each in ("--conf", f"{name}={value}")]
    arguments = [str(file), "--master", "local[2]", "--bootstrap", site.broker.bootstrap, *settings, *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream.cli", "pipeline", "run", *arguments],
        cwd=site.files,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Command(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=LONG_S)


def stored(site: Site, topic: str) -> list[tuple[str, str]]:
    """Returns keys and values of all messages of a topic with one partition, in order."""
    found: list[tuple[str, str]] = []
    offset = 0
    while messages := site.client.read(topic, 0, offset).messages:
        found += [((message.key or b"").decode(), (message.value or b"").decode()) for message in messages]
        offset = messages[-1].offset + 1
    return found
