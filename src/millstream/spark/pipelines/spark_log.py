"""Filters Spark's standard error: relevant lines are shown, and everything goes to a log file if there is one.

Spark's Java process and the Python workers below it write into a pipe, which a thread of this process reads. Java logs
lines of JSON (`log4j2.properties`), PySpark logs JSON with other fields, and a Java process that starts another one
logs in Spark's default format. All other lines were printed by programs and are shown. Of log events, only warnings are
shown, except those that every user gets. Errors of tasks and queries are not shown, because final failures are raised
as exceptions as well.
"""

import json
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO

SETTINGS_FILE = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_TEXT_MAX = 400
_KNOWN = frozenset(
    {
        "DAGScheduler",  # "Failed to cancel job group": the job had already ended.
        "ErrorUtils",  # A client of Spark Connect disconnected before the response.
        "HiveConf",  # Settings of Spark that Hive does not know.
        "NativeCodeLoader",
        "ObjectStore",  # Hive creates its catalog.
        "ResolveWriteToStream",  # Settings that streams disable.
        "SessionState",  # More settings of Hive.
        "TaskSetManager",  # Retries of tasks; final failures are raised as exceptions.
        "Utils",  # The host name resolves to a loopback address.
    }
)
_KNOWN_LINES = (
    "WARNING: Using incubator modules",
    "PySpark daemon failed to flush the output",
    "Using Spark's default log4j profile",
    "\tat ",  # A frame of a Java stack trace.
)
_KNOWN_PART = "UserWarning: Failed to set spark."
"""Part of the warnings about settings that Spark Connect has from its start and that cannot be set again."""
_OF_JAVA = '{"spark":"'
_OF_PYTHON = '{"ts": "'
_BY_DEFAULT = re.compile(r"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ([A-Z]+) (\w+): (.*)")
_NOT_STARTED = re.compile(r'Exception in thread "main" (?:[\w$.]+: )?(.+)')
"""Java's message if Spark does not start."""
_TRACEBACK = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_HANGING_UP = ("BrokenPipeError", "ConnectionResetError", "EOFError")


def log_option() -> str:
    """Returns the Java option that selects this log format."""
    return f"-Dlog4j2.configurationFile={SETTINGS_FILE.as_uri()}"


def java_options(given: str | None) -> str:
    """Returns the user's Java options, preceded by the one that makes Spark log lines of JSON."""
    return f"{log_option()} {given or ''}".strip()


class LogFilter:
    """Takes lines of output one by one, and yields those to show."""

    def __init__(self) -> None:
        self._traceback: list[str] = []
        """Lines of a Python traceback whose end has not arrived yet."""
        self._is_dropped = False
        """True if the last traceback was hidden; the lines that link it to the next traceback are hidden too."""

    def pass_line(self, line: str) -> Iterator[str]:
        """Takes a line of output and yields the lines to show now."""
        logged = parse(line)
        if logged is not None:
            if logged.level == "WARN" and logged.who not in _KNOWN:
                yield f"spark: {_short(logged.text)}"
        elif self._traceback:
            self._traceback.append(line)
            if not line.startswith(" "):
                yield from self._end_of_traceback()
        elif line == _TRACEBACK:
            self._traceback = [line]
        elif not self._is_known(line):
            self._is_dropped = False
            failure = _NOT_STARTED.fullmatch(line)
            yield line if failure is None else f"spark: {_short(failure[1])}"

    def _is_known(self, line: str) -> bool:
        if line.startswith(_KNOWN_LINES) or _KNOWN_PART in line:
            return True
        return self._is_dropped and (not line or line.startswith(_LINKS))

    def _end_of_traceback(self) -> Iterator[str]:
        """Yields a complete traceback, unless it shows that a worker lost its connection while it ended."""
        lines, self._traceback = self._traceback, []
        self._is_dropped = lines[-1].startswith(_HANGING_UP) and any("pyspark" in line for line in lines)
        if not self._is_dropped:
            yield from lines


class LogEntry(NamedTuple):
    """A log event of Spark; `level` is Java's name."""

    who: str
    level: str
    time: str
    text: str
    trace: str = ""


def parse(line: str) -> LogEntry | None:
    """Returns the log event in a line, or None for other lines."""
    try:
        if line.startswith(_OF_JAVA):
            entry = json.loads(line)
            return LogEntry(entry["spark"], entry["level"], entry["time"], entry["text"], entry["trace"])
        if line.startswith(_OF_PYTHON):
            entry = json.loads(line)
            return LogEntry(entry["logger"], entry["level"].removesuffix("ING"), entry["ts"], entry["msg"])
    except (ValueError, KeyError):
        return None
    plain = _BY_DEFAULT.fullmatch(line)
    return None if plain is None else LogEntry(plain[3], plain[2], plain[1], plain[4])


def apart(lines: Iterable[str]) -> Iterator[str]:
    """Yields lines without their line ends, and separates log events from printed text.

    A program that prints a line and its end in two steps may have a log event in between. The event becomes a line of
    its own, and the late line end is dropped.
    """
    is_owed = False
    for each in lines:
        line = each.rstrip("\n")
        at = line.find(_OF_JAVA)
        if at > 0:
            yield line[:at]
            yield line[at:]
            is_owed = True
        elif line or not is_owed:
            yield line
        else:
            is_owed = False


def _short(text: str) -> str:
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= _TEXT_MAX else first[: _TEXT_MAX - 1] + "…"


def as_logged(line: str) -> str:
    """Returns a line for the log file, in Spark's usual format and with its stack trace."""
    logged = parse(line)
    if logged is None:
        return line
    return f"{logged.time} {logged.level} {logged.who}: {logged.text}\n{logged.trace}".rstrip("\n")


def mute_errors() -> None:
    """Silences PySpark, which logs each raised exception in thousands of characters, and Py4J, which logs
    interruptions.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "while sending command" not in str(record.msg))


class SparkLog:
    """Reads Spark's output in a thread until all processes that write it have ended."""

    def __init__(self, tell: Callable[[str], None], log: TextIO | None) -> None:
        self._tell = tell
        self._log = log
        self.is_hushed = False
        """True while Spark is stopped: its complaints about that are not shown."""

    @contextmanager
    def starting(self, held: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[None]:
        """Redirects the output of the Java that starts within the block.

        If the start fails or is interrupted, that process is killed. `held` delays interrupts while it is created,
        because an unknown process could not be killed.
        """
        from pyspark import java_gateway

        gateway: Any = java_gateway
        reading, writing = os.pipe()
        threading.Thread(target=self._read, args=(reading,), name="Spark log reader", daemon=True).start()
        begun: list[subprocess.Popen[bytes]] = []

        def begin(command: Any, **options: Any) -> "subprocess.Popen[bytes]":
            with held():
                begun.append(subprocess.Popen(command, stderr=writing, **options))
            return begun[-1]

        before, gateway.Popen = gateway.Popen, begin
        try:
            yield
        except BaseException:
            for process in begun:
                process.kill()
                process.wait()
            raise
        finally:
            gateway.Popen = before
            os.close(writing)

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            self.read(lines)

    def read(self, lines: Iterable[str]) -> None:
        """Reads all lines until the last writer has ended."""
        log_filter = LogFilter()
        for line in apart(lines):
            if self._log is not None:
                self._log.write(as_logged(line) + "\n")
                self._log.flush()
            for told in log_filter.pass_line(line):
                if not self.is_hushed:
                    self._tell(told)
