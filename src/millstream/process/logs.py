"""Formats structured logs, an event with fields, as console lines or as one JSON object per line.

Code logs with the standard library: `log.warning("connection cut off", extra={"peer": peer, "error": error})`.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, layout: str, stream: TextIO | None = None) -> None:
    """Sends every log of this process to `stream` (default: standard error) in the `console` or `json` format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if layout == "json" else ConsoleLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the fields that were passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class ConsoleLines(logging.Formatter):
    """Formats `2026-01-31 12:00:00.000 warning connection cut off peer=127.0.0.1 error="garbage frame"`."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time_of(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname.lower():7} {record.getMessage()}"
        for name, value in fields_of(record).items():
            line += f" {name}={_shown(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """Formats `{"time":"…","level":"warning","logger":"…","event":"connection cut off","peer":"127.0.0.1"}`."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": _time_of(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        # A field never overwrites one of the four names above.
        row = {**fields_of(record), **row}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(row, enc_hook=repr).decode()


def _shown(value: object) -> str:
    text = str(value)
    if text and not any(char in text for char in ' "=\n\r\t'):
        return text
    return msgspec.json.encode(text).decode()
