"""A project of Spark Declarative Pipelines, run by Spark's own command, with what that needs to find around it.

The command starts Java and Python processes; they are a group of their own, so that a signal ends all of them.
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
    # Without it, tables are forgotten at the end of a run, and stand in the way of the next.
    "spark.sql.catalogImplementation": "hive",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SPECIFICATIONS = ("spark-pipeline.yml", "spark-pipeline.yaml")
_HERE = "local[*]"
_TRACEBACK = "Traceback (most recent call last):"
_LINES_MAX = 2_000
"""Kept of what is said from the first traceback on: what was wrong stands last."""


def specification(path: Path) -> Path | None:
    """The file that says what a project is, where this is a project, or that file; else None."""
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
    """Run the project of this file once; what Spark's command prints goes to `tell`, but for what is Spark's noise.

    PipelineError when it fails; KeyboardInterrupt when a signal has ended it (Terminated for SIGTERM).
    INVALID_SETTING for a `master` that cannot run projects.
    """
    where = _HERE if master is None else master
    if not where.startswith(("local", "sc://")):
        text = f"master {where!r}: a project runs on this machine (local[N]) or on a Spark Connect server (sc://HOST)"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    said: deque[str] = deque(maxlen=_LINES_MAX)

    def hear(line: str) -> None:
        if said or line.startswith(_TRACEBACK):
            said.append(line)
        else:
            tell(line)

    stop = Stop()
    stop.interrupts = False  # A process that was begun must be known, so that it is ended.
    with stop.by_signals(), _begun(file, where, settings) as process:
        stop.at_once = partial(_signal, process, signal.SIGKILL)
        try:
            stop.interrupt()
            assert process.stdout is not None
            said_by_it = io.BufferedReader(InterruptiblePipe(process.stdout.fileno()))
            SparkLog(hear, log).read(io.TextIOWrapper(said_by_it, encoding="utf-8", errors="replace"))
            code = process.wait(threading.TIMEOUT_MAX)  # With a time, it looks again and again.
        except KeyboardInterrupt:
            _end(process, grace_s)
            raise
    if code:
        name = file.resolve().parent.name
        reason = f"spark-pipelines ended with exit code {code}"
        raise told("\n".join(said) or reason, name, file)


def _begun(file: Path, master: str, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
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
    """To all that it has started, unless they have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
