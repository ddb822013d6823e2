"""Runs functions in another process, with one line of JSON per request and per response.

The process serves many requests, since starting it costs more than most of them.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Process:
    """A child process that starts at its first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def give(self, command: Sequence[str], order: Mapping[str, Any], patience_s: float) -> Mapping[str, Any]:
        """Sends one request and returns the response.

        A process that does not respond within `patience_s` is killed. Raises AssertionError if the process ends before
        it responds.
        """
        if self._process is None:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        given, told = self._process.stdin, self._process.stdout
        assert given is not None
        assert told is not None
        # Killing a process that hangs ends the read below.
        watch = threading.Timer(patience_s, self._process.kill)
        watch.start()
        try:
            given.write(json.dumps(order).encode() + b"\n")
            given.flush()
            line = told.readline()
        finally:
            watch.cancel()
            watch.join()
        assert line, f"the process ended in the middle of {order['do']!r}"
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class Servant:
    """The client of a process that runs `serve`."""

    def __init__(self, command: Sequence[str], patience_s: float) -> None:
        self._command = command
        self._patience_s = patience_s
        self._process = Process()

    def ask(self, do: str, **operands: object) -> Any:
        """Calls a function in the process. Raises RuntimeError with the error's text if the function fails."""
        told = self._process.give(self._command, {"do": do, "with": operands}, self._patience_s)
        if "failed" in told:
            raise RuntimeError(told["failed"])
        return told["answer"]

    def close(self) -> None:
        self._process.close()


def serve(start: Callable[[], Mapping[str, Callable[..., Any]]]) -> None:
    """Serves requests for these functions until standard input ends. Operands are passed by name.

    From `start` on, all other output to standard output, including Java's, goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders = start()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"answer": orders[order["do"]](**order["with"])}
        except Exception as error:  # The client gets every error.
            told = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), file=answers, flush=True)
