"""Builds programs that need an environment of their own, into a folder of this one, once per state of their sources."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_HOME = Path(sys.prefix) / "share" / "millstream-clients"


def built(sources: Path, tools: Sequence[str], make: Callable[[Path, Path], None], *others: Path) -> Path:
    """Returns the directory of the program, and builds it with `make(sources, directory)` if it is missing or outdated.

    It is outdated if the sources or the `others` have changed. It is built before the tests, or else at first use.
    """
    name = sources.name
    directory = _HOME / name
    stamp = _HOME / f"{name}.built-from"
    wanted = "".join(f"{path.name}\n{path.read_text()}" for path in (*sorted(sources.iterdir()), *others))
    _HOME.mkdir(parents=True, exist_ok=True)
    with (_HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            for tool in tools:
                assert shutil.which(tool), f"{tool} is missing; `scripts/needs test` installs it, or says how"
            stamp.unlink(missing_ok=True)
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            make(sources, directory)
            stamp.write_text(wanted)
    return directory


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Runs one step of a build. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout.decode(errors='replace')[-4000:]}")
