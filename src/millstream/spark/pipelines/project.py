"""Runs a project of Spark Declarative Pipelines with Spark's own command, and sets up the environment for it.

The command starts Java and Python processes. They form a process group, so a signal ends all of them.
"""

import io
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.java import java_environment
from millstream.spark.pipelines.failures import told
from millstream.spark.pipelines.spark_log import SparkLog, log_option
from millstream.spark.pipelines.stopping import InterruptiblePipe, Stop
from millstream.spark.sessions import DIVIDING_ALIKE

SETTINGS = {
    **DIVIDING_ALIKE,
    # Without Hive's catalog, the next run does not know the tables of this one, but fails because their files exist.
    "spark.sql.catalogImplementation": "hive",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SPECIFICATIONS = ("spark-pipeline.yml", "spark-pipeline.yaml")
_HERE = "local[*]"
_TRACEBACK = "Traceback (most recent call last):"
_LINES_MAX = 2_000
"""Maximum number of lines kept from the first traceback on. The cause is at the end."""


def specification(path: Path) -> Path | None:
    """Returns the project file, if `path` is a project directory or a project file, else None."""
    if path.name in _SPECIFICATIONS and path.is_file():
        return path
    return next((path / name for name in _SPECIFICATIONS if (path / name).is_file()), None)


def run_project(
    file: Path,
    *,
    master: str | None,
    settings: Mapping[str, str],
    tell: Callable[[str], None],
    log: TextIO | None,
    grace_s: float,
) -> None:
    """Runs a project once. `tell` gets the output of Spark's command, without Spark's noise.

    Raises PipelineError if it fails; KeyboardInterrupt if a signal ended it (Terminated for SIGTERM). Raises
    INVALID_SETTING for a `master` that cannot run projects.
    """
    where = _HERE if master is None else master
    if not where.startswith(("local", "sc://")):
        text = f"master {where!r} cannot run a project (accepted: local[N], or sc://HOST for a Spark Connect server)"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    failure_lines: deque[str] = deque(maxlen=_LINES_MAX)

    def pass_on(line: str) -> None:
        if failure_lines or line.startswith(_TRACEBACK):
            failure_lines.append(line)
        else:
            tell(line)

    stop = Stop()
    stop.interrupts = False  # An interrupt between the start of the process and this block would leave it running.
    with stop.by_signals(), _start_process(file, where, settings) as process:
        stop.at_once = partial(_signal, process, signal.SIGKILL)
        try:
            stop.interrupt()
            assert process.stdout is not None
            output = io.BufferedReader(InterruptiblePipe(process.stdout.fileno()))
            SparkLog(pass_on, log).read(io.TextIOWrapper(output, encoding="utf-8", errors="replace"))
            code = process.wait(threading.TIMEOUT_MAX)  # With a timeout, wait() polls and misses no signal.
        except KeyboardInterrupt:
            _end(process, grace_s)
            raise
    if code:
        name = file.resolve().parent.name
        reason = f"spark-pipelines ended with exit code {code}"
        raise told("\n".join(failure_lines) or reason, name, file)


def _start_process(file: Path, master: str, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    import pyspark

    program = str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")
    command = [program, "run", "--spec", file.name, "--remote", master]
    for name, value in {**SETTINGS, **settings}.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
        **java_environment(os.environ),
        "SPARK_SUBMIT_OPTS": f"{log_option()} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip(),
    }
    return subprocess.Popen(
        command,
        cwd=file.resolve().parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]", grace_s: float) -> None:
    _signal(process, signal.SIGINT)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Signals the whole process group, unless it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
