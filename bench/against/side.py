"""Runs one of the two brokers that are compared."""

import os
import re
import subprocess
from pathlib import Path

from bench.against.builds import Build
from bench.against.checkout import Revision
from bench.peers import Millstream

OLD, NEW = "old", "new"


class SideError(RuntimeError):
    """The command of a side cannot be used for the comparison."""


class Side(Millstream):
    """A broker from a build, with the command line and settings that the bench uses for every Millstream broker."""

    def __init__(self, name: str, directory: Path, revision: Revision, build: Build) -> None:
        super().__init__(directory)
        self.name = name
        self.program = build.program
        self._revision = revision
        self._build = build

    def prepare(self) -> None:
        (self.directory / "data").mkdir()

    def environment(self) -> dict[str, str]:
        """Returns the environment without variables that would change the settings or the package of one side only."""
        prefix = self._build.project.environment_prefix
        variables = super().environment().items()
        return {name: value for name, value in variables if name != "PYTHONPATH" and not name.startswith(prefix)}

    def version(self) -> str:
        return self._revision.title

    def check(self) -> None:
        """Raises SideError unless the package comes from the build and `serve` has every flag that the bench uses."""
        python, command = self.program
        package, sources = self._build.project.package, self._build.directory / "files" / "src"
        where = self._output(python, "-c", f"import {package}; print({package}.__file__)")
        if not Path(where.strip()).is_relative_to(sources):
            raise SideError(
                f"{self.name}, {self.version()}, would run the package of {where.strip()} instead of {sources}"
            )
        known = set(re.findall(r"--[a-z][a-z-]*", self._output(python, command, "serve", "--help")))
        used = {word for word in self.command(flush_always=True) if word.startswith("--")}
        if not used <= known:
            missing = ", ".join(sorted(used - known))
            raise SideError(f"{self.name}, {self.version()}, cannot be compared: its `serve` lacks {missing}")

    def _output(self, *command: str) -> str:
        environment = {**self.environment(), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=os.sep, check=False)
        if done.returncode:
            raise SideError(f"{self.name}, {self.version()}, does not run:\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout
