"""Keeps the last log lines of a child process, to explain why it ended."""

import json
import signal
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

    def reason(self, code: int | None) -> str:
        """Returns the error messages of the child, or else its last line.

        `code` is its exit code, or None if it runs. A child that a signal has ended could not log why, so its last line
        is about something else.
        """
        failures = [reason for reason in map(_failure, self._lines) if reason]
        is_by_signal = code is not None and code < 0
        return "; ".join(failures) or ("" if is_by_signal else " ".join([*self._lines][-1:]))


def ended(code: int) -> str:
    """Returns how a process ended. A negative code is the number of a signal."""
    if code >= 0:
        return f"exited with code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"was ended by {known.get(-code, f'signal {-code}')}"


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
