"""Runs a command in a pseudo-terminal with a chosen width."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from types import TracebackType
from typing import Self

from builders.command import TIMEOUT_S, Command

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Runs one command with a terminal for all its streams; `text` is its output so far."""

    def __init__(self, command: Command, *arguments: str, columns: int = 120) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._descriptor = ours
        self._process = subprocess.Popen(
            command.line(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={k: v for k, v in command.environment.items() if k != "COLUMNS"} | {"TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
        os.close(self._descriptor)

    @property
    def text(self) -> str:
        return _STYLE.sub("", self._shown.decode(errors="replace")).replace("\r\n", "\n")

    def expect(self, text: str) -> None:
        """Wait until this text has appeared."""
        end_s = time.monotonic() + TIMEOUT_S
        while text not in self.text:
            assert self._read(end_s), f"{text!r} did not appear in {self.text!r}"

    def look(self, wait_s: float) -> None:
        """Read the available output, and output that appears within `wait_s`."""
        self._read(time.monotonic() + wait_s)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def ended(self) -> int:
        """Read the remaining output and return the exit code."""
        end_s = time.monotonic() + TIMEOUT_S
        while self._read(end_s):
            pass
        return self._process.wait(TIMEOUT_S)

    def _read(self, end_s: float) -> bool:
        """Read more output; false if the time is over or the command has ended."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end_s - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # Linux reports a closed other end of the terminal as an error.
            return False
        self._shown += data
        return bool(data)
