"""A process that takes orders: a line of JSON on its standard input for each, a line of JSON on its standard output for
what came of it. It serves many, since starting it costs more than most of them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Process:
    """Started when it is given its first order."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def give(self, command: Sequence[str], order: Mapping[str, Any], patience_s: float) -> Mapping[str, Any]:
        """Give one order, and take its answer. A process that says nothing for so long is ended, and that raises
        AssertionError, as it does when it ends by itself."""
        if self._process is None:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        given, told = self._process.stdin, self._process.stdout
        assert given is not None
        assert told is not None
        # One that hangs is ended, which ends the reading below, rather than holding everything.
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
    """A process of `serve`."""

    def __init__(self, command: Sequence[str], patience_s: float) -> None:
        self._command = command
        self._patience_s = patience_s
        self._process = Process()

    def ask(self, do: str, **operands: object) -> Any:
        """RuntimeError with what was said of an order that failed."""
        told = self._process.give(self._command, {"do": do, "with": operands}, self._patience_s)
        if "failed" in told:
            raise RuntimeError(told["failed"])
        return told["answer"]

    def close(self) -> None:
        self._process.close()


def serve(start: Callable[[], Mapping[str, Callable[..., Any]]]) -> None:
    """Be such a process: functions by their names, with operands by theirs, until standard input ends.

    Whatever else writes to standard output from `start` on, Java included, writes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders = start()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = {"answer": orders[order["do"]](**order["with"])}
        except Exception as error:  # Whoever gave the order is told, whatever it is.
            told = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), file=answers, flush=True)
