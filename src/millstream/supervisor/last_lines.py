"""Keeps the last log lines of a child process, to explain why it ended."""

from collections import deque

LINES_KEPT = 12
_ERROR = "millstream: "


class LastLines:
    """The last lines of a child's standard error, and what they say about its end."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    def add(self, line: bytes) -> None:
        self._lines.append(line.decode(errors="replace").strip())

    def clear(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        """Returns the error messages of the child. If there are none, returns its last line."""
        errors = [line for line in self._lines if line.startswith(_ERROR.strip())]
        return ("; ".join(errors) or " ".join([*self._lines][-1:])).removeprefix(_ERROR)
