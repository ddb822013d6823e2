"""A process that takes orders: a line of JSON on its standard input for each, a line of JSON on its standard output for
what came of it. It serves many, since starting it costs more than most of them."""

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
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
