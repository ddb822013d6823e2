"""Starts and kills Spark's processes: a driver's Python and JVM, executors, and Python workers of tasks."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faults.spark.job import FAILED

END_S = 120
_TESTS = Path(__file__).parents[2]
_DAEMON = b"pyspark.daemon\0"
_WORKERS = _DAEMON + b"pyspark.worker\0"
_EXECUTOR = b".CoarseGrainedExecutorBackend\0"


class Process(NamedTuple):
    id: int
    parent: int
    command: bytes


class Driver:
    """Runs one driver after the other with the same arguments except the last; their stderr goes to one file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()
        """The session ids of all drivers."""

    def start(self, rows_per_batch: int) -> None:
        path = os.pathsep.join((str(_TESTS), os.environ.get("PYTHONPATH", "")))
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.spark.job", *self._arguments, str(rows_per_batch)],
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self._sessions.add(self.session)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def failures(self) -> list[str]:
        """Return the failures of queries so far."""
        return [line for line in self.said().splitlines() if line.startswith(FAILED)]

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def session(self) -> int:
        """Return the session id of the driver's processes."""
        assert self._process is not None
        return self._process.pid

    def kill(self, part: str) -> None:
        """Kill `all` processes of the driver, or only `java` or `python`, without a signal to the others."""
        for each in processes(self.session):
            if part == "all" or (b"/java\0" in each.command if part == "java" else each.id == self.session):
                kill(each.id)
        self._release()

    def end(self) -> None:
        """Stop the driver's queries and wait for its end."""
        self._release()

    def _release(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=END_S)

    def close(self) -> None:
        """Kill all remaining processes of all drivers."""
        for each in processes(*self._sessions):
            kill(each.id)
        if self._process is not None:
            self._release()


def workers(*sessions: int) -> list[int]:
    """Return the processes that run the Python part of tasks; a separate process forks them."""
    found = [each for each in processes(*sessions) if _WORKERS in each.command]
    ids = {each.id for each in found}
    return [each.id for each in found if each.parent in ids]


def planners(*sessions: int) -> list[int]:
    """Return the processes that run the driver's part of Python sources and sinks."""
    return [each.id for each in processes(*sessions) if _DAEMON in each.command and _WORKERS not in each.command]


def executors(*sessions: int) -> list[int]:
    """Return the executor processes; with a local master the driver's JVM runs tasks instead."""
    return [each.id for each in processes(*sessions) if _EXECUTOR in each.command]


def processes(*sessions: int) -> list[Process]:
    """Return all processes in these sessions."""
    entries = (each for each in Path("/proc").iterdir() if each.name.isdecimal())
    return [found for each in entries if (found := _look(each, sessions))]


def kill(process_id: int) -> None:
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _look(directory: Path, sessions: Sequence[int]) -> Process | None:
    try:
        fields = (directory / "stat").read_bytes().rpartition(b")")[2].split()
        command = (directory / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(int(directory.name), int(fields[1]), command) if int(fields[3]) in sessions else None
