"""Runs a Spark cluster on this machine: a master and workers, from the pip packages of Spark and of Java.

The workers' environment has no Millstream. The executors' environment is shipped with the application, as it is to
other machines.
"""

import os
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from millstream.spark.java import java_environment
from spark.quick_java import QUICK_JAVA

_SPARK = Path(pyspark.__file__).parent
_PACKAGE = "org.apache.spark.deploy"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
USED = "python-was-used-here"
_READY_S = 60.0
_POLL_S = 0.02


class Cluster:
    """A master and its workers."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        self._size = workers
        self.workers: list[int] = []
        """Process numbers of all workers that were started."""
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = ""
        """URL of the master."""

    def __enter__(self) -> Self:
        try:
            number = self._start("master.Master", "--port", "0")
            self.master = self._found(number, _MASTER)
            for _ in range(self._size):
                self.add_worker()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def sessions(self) -> list[int]:
        """Process session ids of the workers; a worker's executors run in its session."""
        return [self._started[number].pid for number in self.workers]

    def add_worker(self) -> None:
        """Starts a worker. Spark uses it as soon as it has registered."""
        where = ("--work-dir", str(self._directory / f"work-{len(self._started)}"))
        self.workers.append(self._start("worker.Worker", *where, "--cores", "1", "--memory", "512m", self.master))

    def uses_of_python(self) -> int:
        """Returns the number of executors that have started the packed Python."""
        return len(list(self._directory.glob(f"work-*/*/*/{USED}")))

    def kill_worker(self, number: int) -> None:
        """Kills a worker with its executors, as if its machine were lost."""
        _kill(self._started[number])

    def _start(self, name: str, *arguments: str) -> int:
        number = len(self._started)
        command = [str(_SPARK / "bin" / "spark-class"), f"{_PACKAGE}.{name}", "--host", "127.0.0.1"]
        environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))
            },
            **java_environment({}, bundled=True),
            "SPARK_HOME": str(_SPARK),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        }
        with self._log(number).open("wb") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return number

    def _found(self, number: int, wanted: re.Pattern[str]) -> str:
        """Waits for a line in the log of a process, and returns the matched text."""
        until_s = time.monotonic() + _READY_S
        while (found := wanted.search(said := self._log(number).read_text())) is None:
            is_late = self._started[number].poll() is not None or time.monotonic() > until_s
            assert not is_late, f"Spark's master did not start:\n{said[-4000:]}"
            time.sleep(_POLL_S)
        return found[1]

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.log"

    def _end(self) -> None:
        for process in reversed(self._started):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and everything that it has started. Repeated calls have no effect."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def packed(directory: Path, python: str) -> Path:
    """Creates an environment archive with a Python at `bin/python`, like that of a complete environment.

    That Python starts the interpreter of this machine, since packing one would take long, and leaves a mark in the
    directory where it was started.
    """
    script = directory / "python"
    script.write_text(f'#!/bin/sh\ntouch {USED}\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(script, "bin/python")
    return archive
