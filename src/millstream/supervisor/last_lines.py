"""Keeps the last log lines of a child process, to explain why it ended."""

import json
from collections import deque

LINES_KEPT = 12
_PLAIN_FAILURE = "millstream: "


class LastLines:
    """The last lines of a child's standard error, and what they say about its end."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    def add(self, line: bytes) -> str:
        """Keep a line, and return its text."""
        text = line.decode(errors="replace").strip()
        self._lines.append(text)
        return text

    def clear(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        """Returns the error messages of the child. If there are none, returns its last line."""
        failures = [reason for reason in map(_failure, self._lines) if reason]
        return "; ".join(failures) or " ".join([*self._lines][-1:])


def _failure(line: str) -> str:
    """Return the reason in a line of `process.logs.report_failure`, or an empty text."""
    if line.startswith(_PLAIN_FAILURE):
        return line.removeprefix(_PLAIN_FAILURE)
    try:
        row = json.loads(line)
    except ValueError:
        return ""
    is_failure = isinstance(row, dict) and row.get("event") == "process failed"
    return str(row.get("error", "")) if is_failure else ""
