"""What Spark says on standard error, sifted: what matters passes in a line, and all of it goes to a log, if wanted.

Spark's Java process, and the Python workers below it, write into a pipe that a thread of this process reads. What Spark
logs comes as lines of JSON (`log4j2.properties`), from its Python part as other JSON, and from a Java that starts
another as it is set up in Spark; everything else is from programs, and passes. Of what is logged pass warnings, but for
those that everybody gets; errors of tasks and queries do not, since whatever fails for good is raised as well.
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
        "DAGScheduler",  # "Failed to cancel job group": it had ended.
        "ErrorUtils",  # Who asked Spark Connect has gone before its answer.
        "HiveConf",  # What Spark sets and Hive does not know.
        "NativeCodeLoader",
        "ObjectStore",  # Hive, when it begins to keep the names of tables.
        "ResolveWriteToStream",  # What streams switch off by themselves.
        "SessionState",  # Hive again.
        "TaskSetManager",  # Tasks that are tried again; those that fail for good are raised.
        "Utils",  # The name of this machine.
    }
)
_KNOWN_LINES = (
    "WARNING: Using incubator modules",
    "PySpark daemon failed to flush the output",
    "Using Spark's default log4j profile",
    "\tat ",  # Where in Java something was raised.
)
_KNOWN_PART = "UserWarning: Failed to set spark."
"""Of settings that Spark Connect has from its start, and cannot be given again."""
_OF_JAVA = '{"spark":"'
_OF_PYTHON = '{"ts": "'
_BY_DEFAULT = re.compile(r"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ([A-Z]+) (\w+): (.*)")
_NOT_STARTED = re.compile(r'Exception in thread "main" (?:[\w$.]+: )?(.+)')
"""What Java says when it does not start Spark."""
_TRACEBACK = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_HANGING_UP = ("BrokenPipeError", "ConnectionResetError", "EOFError")


def log_option() -> str:
    """For a Java that runs Spark."""
    return f"-Dlog4j2.configurationFile={SETTINGS_FILE.as_uri()}"


def java_options(given: str | None) -> str:
    """What makes Spark log in lines of JSON, in front of the options that the user has for its Java."""
    return f"{log_option()} {given or ''}".strip()


class LogFilter:
    """Lines go in one by one, and what is for people comes out."""

    def __init__(self) -> None:
        self._traceback: list[str] = []
        """Lines of one of Python's, as long as it is not known how it ends."""
        self._is_dropped = False
        """Whether the last traceback was no news; then what links it to another is none either."""

    def pass_line(self, line: str) -> Iterator[str]:
        logged = parse(line)
        if logged is not None:
            if logged.level == "WARN" and logged.who not in _KNOWN:
                yield f"spark: {_short(logged.text)}"
        elif self._traceback:
            self._traceback.append(line)
            if not line.startswith(" "):
                yield from self._whole()
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

    def _whole(self) -> Iterator[str]:
        """A worker that is hung up on while it ends is no news."""
        lines, self._traceback = self._traceback, []
        self._is_dropped = lines[-1].startswith(_HANGING_UP) and any("pyspark" in line for line in lines)
        if not self._is_dropped:
            yield from lines


class LogEntry(NamedTuple):
    """`level` is as Java calls it."""

    who: str
    level: str
    time: str
    text: str
    trace: str = ""


def parse(line: str) -> LogEntry | None:
    """What Spark has logged; None for a line that is something else's."""
    try:
        if line.startswith(_OF_JAVA):
            said = json.loads(line)
            return LogEntry(said["spark"], said["level"], said["time"], said["text"], said["trace"])
        if line.startswith(_OF_PYTHON):
            said = json.loads(line)
            return LogEntry(said["logger"], said["level"].removesuffix("ING"), said["ts"], said["msg"])
    except (ValueError, KeyError):
        return None
    plain = _BY_DEFAULT.fullmatch(line)
    return None if plain is None else LogEntry(plain[3], plain[2], plain[1], plain[4])


def apart(lines: Iterable[str]) -> Iterator[str]:
    """Lines without their ends. Who writes a line and its end in two steps may have what Spark logs in between: that
    becomes a line of its own, and the end that comes late none."""
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
    """A line for the log: as people know it from Spark, with its trace."""
    logged = parse(line)
    if logged is None:
        return line
    return f"{logged.time} {logged.level} {logged.who}: {logged.text}\n{logged.trace}".rstrip("\n")


def mute_errors() -> None:
    """PySpark logs what it raises, in a line of thousands of characters, and Py4J that it was interrupted."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "while sending command" not in str(record.msg))


class SparkLog:
    """Reads what Spark says, in a thread, until Spark is gone."""

    def __init__(self, tell: Callable[[str], None], log: TextIO | None) -> None:
        self._tell = tell
        self._log = log
        self.is_hushed = False
        """When it is being ended, Spark complains of what it is told to end."""

    @contextmanager
    def starting(self, held: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[None]:
        """Spark is started within. If that fails, or is interrupted, nothing of Spark is left: so nothing may interrupt
        while a process is begun that is not known yet, which `held` sees to."""
        from pyspark import java_gateway

        gateway: Any = java_gateway
        reading, writing = os.pipe()
        threading.Thread(target=self._read, args=(reading,), name="what Spark says", daemon=True).start()
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
        """All of it, until the last who writes has ended."""
        sieve = LogFilter()
        for line in apart(lines):
            if self._log is not None:
                self._log.write(as_logged(line) + "\n")
                self._log.flush()
            for told in sieve.pass_line(line):
                if not self.is_hushed:
                    self._tell(told)
