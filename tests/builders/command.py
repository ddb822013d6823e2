"""Runs the real `millstream` command as a child process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

TIMEOUT_S = 90


class Ended(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    output: bytes
    errors: str

    @property
    def lines(self) -> list[bytes]:
        return self.output.splitlines()

    @property
    def documents(self) -> list[Any]:
        """Parse the output as JSON, one document per line."""
        return [json.loads(line) for line in self.lines]


class Command:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.environment = inherited | {"MILLSTREAM_BOOTSTRAP": bootstrap}

    def line(self, *arguments: str) -> list[str]:
        """Return the complete command line."""
        return [sys.executable, "-m", "millstream.cli", *arguments]

    def run(self, *arguments: str, given: bytes = b"") -> Ended:
        """Run the command to its end, with `given` on standard input."""
        done = subprocess.run(
            self.line(*arguments),
            input=given,
            capture_output=True,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr.decode())

    def succeed(self, *arguments: str, given: bytes = b"") -> Ended:
        """Run the command to its end and assert that it succeeds."""
        ended = self.run(*arguments, given=given)
        assert ended.code == 0, ended.errors
        assert ended.errors == ""
        return ended

    @contextmanager
    def running(
        self, *arguments: str, output: int | IO[bytes] = subprocess.PIPE
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command that keeps running; it is stopped at the end of the block."""
        process = subprocess.Popen(
            self.line(*arguments),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(TIMEOUT_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
