"""Reads the resource usage of a process from /proc: CPU of all its threads, memory, page faults, context switches."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WHOLE_PROCESS = 2
"""Number that, combined with a process id, identifies the kernel's CPU clock of the whole process."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals since process start. Subtract two to get the cost of a piece of work."""

    cpu_s: float
    """Precise to the nanosecond, from the scheduler."""
    user_s: float
    system_s: float
    """User and system time are sampled by the kernel, in hundredths of a second."""
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int

    def __add__(self, other: "Usage") -> "Usage":
        return self._combine(other, 1)

    def __sub__(self, other: "Usage") -> "Usage":
        return self._combine(other, -1)

    def _combine(self, other: "Usage", sign: int) -> "Usage":
        return Usage(
            self.cpu_s + sign * other.cpu_s,
            self.user_s + sign * other.user_s,
            self.system_s + sign * other.system_s,
            self.minor_faults + sign * other.minor_faults,
            self.major_faults + sign * other.major_faults,
            self.voluntary_switches + sign * other.voluntary_switches,
            self.involuntary_switches + sign * other.involuntary_switches,
        )


def usage(pid: int) -> Usage:
    """Returns the usage of a process and of all its descendants."""
    total = _usage_of_one(pid)
    for child in _descendants(pid):
        total = total + _usage_of_one(child)
    return total


def running_s(pid: int) -> float:
    """Returns the CPU time of a process's current threads, precise to the nanosecond: for work of a few clock ticks."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total_ns / 1e9


def resident_mb(pid: int) -> float:
    """Returns the resident memory of a process and of all its descendants, in units of a million bytes."""
    return sum(_status_number(Path(f"/proc/{one}/status"), "VmRSS") for one in (pid, *_descendants(pid))) * 1024 / 1e6


def end_children() -> None:
    """Ends every descendant of this process, also one that an interrupt kept from being recorded."""
    for child in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _usage_of_one(pid: int) -> Usage:
    # The name in field 2 may hold spaces and brackets, so the fields are counted from its closing bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    voluntary = involuntary = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            voluntary += _status_number(task / "status", "voluntary_ctxt_switches")
            involuntary += _status_number(task / "status", "nonvoluntary_ctxt_switches")
        except (FileNotFoundError, ProcessLookupError):
            continue  # The thread ended meanwhile.
    return Usage(
        cpu_s=time.clock_gettime(~pid << 3 | _WHOLE_PROCESS),
        user_s=int(fields[11]) / _TICKS_PER_S,
        system_s=int(fields[12]) / _TICKS_PER_S,
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
    )


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, children):
            found += [child, *_descendants(child)]
    return found


def _status_number(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    return 0
