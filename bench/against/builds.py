"""Builds the broker of a revision: its files, its compiled codec, and an environment that runs it.

The environment is a virtual environment whose path names the revision's own sources first and the third-party packages
of the current environment second. A build is kept under the revision's hash. It is complete when its stamp exists, and
is reused only with the same Python and the same package folders, which the stamp lists.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.against.checkout import Checkout, Revision
from bench.against.project import Project, ProjectError, read_project
from bench.peers import ROOT

KEPT_S = 7 * 24 * 3600.0
"""Age since its last use at which a build is removed."""

LOG_LINES = 20
STAMP = "built"
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
PACKAGES = tuple(dict.fromkeys(sysconfig.get_path(kind) for kind in ("platlib", "purelib")))
"""The folders with the third-party packages of the current environment."""

_CHECK = """
import sys, setup, {package}
missing = [str(path) for path in setup.MODULES if not path.with_suffix({suffix!r}).exists()]
sys.exit("not compiled: " + ", ".join(missing) if missing else 0)
"""
_COMMAND = """import sys
from {module} import {function}
sys.exit({function}())
"""


class BuildError(RuntimeError):
    """A step of a build failed; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Build:
    """A finished build: its directory and its project."""

    directory: Path
    project: Project

    @property
    def program(self) -> Sequence[str]:
        """Argument vector that runs the project's command."""
        return str(self.directory / "env" / "bin" / "python"), str(self.directory / self.project.command)


class Builds:
    """The folder of all builds. Revisions with the same hash share a build."""

    def __init__(self, checkout: Checkout, directory: Path, tell: Callable[[str], None]) -> None:
        self._checkout = checkout
        self._directory = directory
        self._tell = tell
        directory.mkdir(parents=True, exist_ok=True)

    def build(self, revision: Revision) -> Build:
        """Builds a revision unless its build exists. Raises BuildError or ProjectError when that fails."""
        directory = self._directory / revision.object_id[:16]
        with _locked(directory.with_suffix(".lock")):
            stamp, wanted = directory / STAMP, "\n".join([sys.version, *PACKAGES, str(directory)])
            if stamp.exists() and stamp.read_text() == wanted:
                self._tell(f"{revision.title}: built earlier")
            else:
                shutil.rmtree(directory, ignore_errors=True)
                self._make(revision, directory)
            stamp.write_text(wanted)
        return Build(directory, read_project((directory / "files" / "pyproject.toml").read_text()))

    def remove_unused(self) -> None:
        """Removes the builds that no run has used for a week, and failed builds of that age."""
        for directory in (path for path in self._directory.iterdir() if path.is_dir()):
            stamp = directory / STAMP
            used = stamp if stamp.exists() else directory
            if used.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(directory, ignore_errors=True)
                directory.with_suffix(".lock").unlink(missing_ok=True)

    def _make(self, revision: Revision, directory: Path) -> None:
        files = directory / "files"
        files.mkdir(parents=True)
        self._tell(f"{revision.title}: exporting")
        self._checkout.export(revision, files)
        try:
            project = read_project((files / "pyproject.toml").read_text())
        except (FileNotFoundError, ProjectError) as error:
            raise ProjectError(f"{revision.title} cannot be built: {error}") from error
        step = _Steps(revision, files, directory / "build.log")
        step("make the environment", sys.executable, "-m", "venv", "--without-pip", "../env")
        site = next((directory / "env" / "lib").glob("python*")) / "site-packages"
        (site / "bench.pth").write_text("\n".join([str(files / "src"), *PACKAGES]) + "\n")
        (directory / project.command).write_text(_COMMAND.format(module=project.module, function=project.function))
        reused = copy_compiled(ROOT, files)
        how = "compiled modules are those of the working tree" if reused else "compiling, which takes about a minute"
        self._tell(f"{revision.title}: {how}")
        step("compile the codec", "bash", "scripts/codec", "../env")
        check = _CHECK.format(package=project.package, suffix=SUFFIX)
        step("check the codec", "../env/bin/python", "-c", check)
        step("compile the byte code", "../env/bin/python", "-m", "compileall", "-q", "src")


class _Steps:
    """Runs the steps of one build, in the folder with its files."""

    def __init__(self, revision: Revision, files: Path, log: Path) -> None:
        self._title = revision.title
        self._files = files
        self._log = log

    def __call__(self, what: str, *command: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self._log.open("a") as log:
            log.write(f"+ {what}: {' '.join(command)}\n")
            log.flush()
            # A group of its own, so that an interrupt also ends the compilers that a step has started.
            process = subprocess.Popen(
                command,
                cwd=self._files,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait()
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        if code:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise BuildError(f'the build of {self._title} failed at "{what}"; the end of {self._log}:\n{tail}')


def copy_compiled(root: Path, files: Path) -> bool:
    """Copies the compiled modules of a source tree into another if both would compile the same. True if it copied them.

    They are copied only if they are newer than everything they are compiled from.
    """
    compiled = sorted((root / "src").rglob(f"*{SUFFIX}"))
    sources = [path.with_name(path.name.removesuffix(SUFFIX) + ".py") for path in compiled]
    sources += [root / "setup.py", *(root / "src").rglob("*.pxd")]
    if not compiled or not all(_same(path, files / path.relative_to(root)) for path in sources):
        return False
    if min(path.stat().st_mtime_ns for path in compiled) < max(path.stat().st_mtime_ns for path in sources):
        return False
    for path in compiled:
        shutil.copyfile(path, files / path.relative_to(root))
    return True


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
