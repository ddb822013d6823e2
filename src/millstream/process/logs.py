"""Formats structured logs, an event with fields, as console lines or as one JSON object per line.

Code logs with the standard library: `log.warning("connection cut off", extra={"peer": peer, "error": error})`.

With the `json` format, every line of the stream is one JSON object. Warnings, uncaught exceptions and the reason of a
failed start are therefore logged too, and the gRPC library prints nothing.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import ModuleType, TracebackType
from typing import Any, TextIO

import msgspec

from millstream.process.client_events import LIMITED
from millstream.process.log_event import LogEvent, shown_fields
from millstream.process.log_limiter import LogLimiter

LIMITED_PERIOD_S = 10.0
LIMITED_LINES_MAX = 200
"""Maximum number of lines about changes that clients cause, in `LIMITED_PERIOD_S`."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", LIMITED}
_FIRST = frozenset({"time", "level", "event", "logger"})
_log = logging.getLogger("millstream")


def configure(level: str, layout: str, stream: TextIO | None = None) -> None:
    """Sends every log of this process to `stream` (default: standard error) in the `console` or `json` format."""
    handler = _QuietHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if layout == "json" else ConsoleLines())
    handler.addFilter(ClientEventFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if layout == "json":
        _log_instead_of_printing()


def are_json() -> bool:
    """True if the logs of this process are JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def report_failure(text: str, error: BaseException | None = None) -> None:
    """Prints why the process ends, or logs it, with the traceback of `error`, if the logs of this process are JSON."""
    if are_json():
        _log.error("process failed", extra={"error": text}, exc_info=error)
    else:
        sys.stderr.write(f"millstream: {text}\n")
        sys.stderr.flush()


def _log_instead_of_printing() -> None:
    """Logs what Python and gRPC would otherwise print on standard error."""
    logging.captureWarnings(True)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for module, name, hook in _HOOKS:
        setattr(module, name, hook)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log.error("process failed", exc_info=(kind, error, trace))


_HOOKS: Sequence[tuple[ModuleType, str, Callable[..., None]]] = (
    (sys, "excepthook", _log_uncaught),
    (sys, "unraisablehook", lambda raised: _log.error("exception ignored", exc_info=raised.exc_value)),
    (threading, "excepthook", lambda raised: _log.error("thread failed", exc_info=raised.exc_value)),
)
"""The functions with which Python reports exceptions that nothing handles."""


class _QuietHandler(logging.StreamHandler[TextIO]):
    """Prints nothing about a line that cannot be written, for example because the disk of the stream is full."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name of the base class
        pass


class ClientEventFilter(logging.Filter):
    """Limits the lines about changes that clients cause. The next line has the number of suppressed lines."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = LogLimiter(LIMITED_PERIOD_S, lines_max=LIMITED_LINES_MAX)

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, LIMITED):
            return True
        if not self._limiter.has_room(record.created):
            return False
        if suppressed := self._limiter.take_overflow():
            vars(record)["suppressed"] = suppressed
        return True


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields of a `LogEvent`, and those that were passed as `extra`."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**record.msg.fields, **fields} if isinstance(record.msg, LogEvent) else fields


def _event_of(record: logging.LogRecord) -> str:
    if isinstance(record.msg, LogEvent):
        return record.msg.event
    try:
        return record.getMessage()
    except Exception:  # The arguments do not match the message: a line without them is better than none.
        return str(record.msg)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class ConsoleLines(logging.Formatter):
    """Formats `2026-01-31 12:00:00.000 warning connection cut off peer=127.0.0.1 error="garbage frame"`."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time_of(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname.lower():7} {_event_of(record)}{shown_fields(fields_of(record))}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """Formats `{"time":"…","level":"warning","event":"connection cut off","logger":"…","peer":"127.0.0.1"}`."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": _time_of(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": _event_of(record),
            "logger": record.name,
        }
        # A field never overwrites one of the four names above, which come first.
        row |= {name: value for name, value in fields_of(record).items() if name not in row}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(row, enc_hook=repr).decode()
        except Exception:  # For example an integer over 64 bits, or a file name that is not valid UTF-8.
            return json.dumps({name: repr(value) if name not in _FIRST else value for name, value in row.items()})
