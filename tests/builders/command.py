"""The real `millstream` command as a child process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

TIMEOUT_S = 90


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    output: bytes
    errors: str

    @property
    def lines(self) -> list[bytes]:
        return self.output.splitlines()

    @property
    def documents(self) -> list[Any]:
        """The output as JSON, one document a line."""
        return [json.loads(line) for line in self.lines]


class Command:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.environment = inherited | {"MILLSTREAM_BOOTSTRAP": bootstrap}

    def line(self, *arguments: str) -> list[str]:
        """The command line of this command."""
        return [sys.executable, "-m", "millstream.cli", *arguments]

    def run(self, *arguments: str, given: bytes = b"") -> Ended:
        """Run to the end, with `given` on standard input."""
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
        """Run to the end, which must be a good one."""
        ended = self.run(*arguments, given=given)
        assert ended.code == 0, ended.errors
        assert ended.errors == ""
        return ended

    @contextmanager
    def running(
        self, *arguments: str, output: int | IO[bytes] = subprocess.PIPE
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A command that goes on; it is ended with the block."""
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
