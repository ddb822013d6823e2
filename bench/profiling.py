"""Profiles the broker with py-spy from outside: lists the functions that most samples found running.

Sampling slows the process down a little, so profiles are taken in separate runs, which measure nothing.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers import ROOT

PROFILES = ROOT / "bench" / "profiles"
RATE_HZ = 500
BEGIN_S = 1.0
"""Time that the sampler needs before it can sample a process."""

TOP = 15
_WAITS_FOR_WORK = "ThreadWorkers._work (millstream/seams/workers.py)"


class Profiler:
    """Stores the stacks of the last profiled process. Raises RuntimeError if py-spy is missing or not permitted."""

    def __init__(self, directory: Path = PROFILES) -> None:
        self._directory = directory
        beside = Path(sys.executable).parent / "py-spy"
        found = str(beside) if beside.exists() else shutil.which("py-spy")
        if found is None:
            raise RuntimeError(f"bench: --profile needs py-spy; install it: {sys.executable} -m pip install py-spy")
        self._command = found
        self._folded: list[str] = []

    @contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory, "stacks")
            command = [self._command, "record", "--pid", str(pid), "--rate", str(RATE_HZ), "--nolineno", "--native"]
            command += ["--format", "raw", "--output", str(output)]
            sampler = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                time.sleep(BEGIN_S)
                yield
            finally:
                sampler.send_signal(signal.SIGINT)
                said, _ = sampler.communicate(timeout=60)
            if not output.exists():
                raise RuntimeError(f"bench: py-spy wrote no profile (it needs root, or permission to trace):\n{said}")
            self._folded = output.read_text().splitlines()

    def save(self, workload: str, version: str) -> Path:
        """Writes the most frequent functions to a file; returns the file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{re.sub(r'[^a-z0-9]+', '-', workload.lower()).strip('-')}.txt"
        path.write_text("\n".join([f"{workload} ({version})", "", *summary(self._folded)]) + "\n")
        return path


def summary(folded: Sequence[str], top: int = TOP) -> list[str]:
    """Ranks functions by their own time, and by the time in them and everything they call.

    Samples of threads that wait for events or for work are ignored. A line of `folded` is a stack, outermost function
    first, separated by semicolons, and its number of samples.
    """
    at_work: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in folded:
        stack, _, count = line.rpartition(" ")
        functions = [_short(function) for function in stack.split(";")]
        if _is_waiting(functions):
            continue
        at_work[functions[-1]] += int(count)
        for function in set(functions):
            within[function] += int(count)
    total = sum(at_work.values())
    lines = [f"{total:,} samples at {RATE_HZ} a second of threads at work"]
    for title, ranked in (("By its own time", at_work), ("By all that happens within", within)):
        lines += ["", title, "", "   self  within  function"]
        for function, _ in sorted(ranked.items(), key=lambda each: (-each[1], each[0]))[:top]:
            lines.append(f"{at_work[function] / total:7.1%} {within[function] / total:7.1%}  {function}")
    return lines


def _is_waiting(functions: Sequence[str]) -> bool:
    in_python = [function for function in functions if function.endswith(".py)")]
    return functions[-1].startswith("epoll_") or in_python[-1:] == [_WAITS_FOR_WORK]


def _short(function: str) -> str:
    """Returns `name (file)` with the file's path relative to its package root."""
    return re.sub(r"\((?:.*/)?(?:src|site-packages|lib/python[\d.]+)/", "(", function)
