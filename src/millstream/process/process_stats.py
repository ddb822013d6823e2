"""Reads this process's memory, CPU time and open files from the kernel, and raises its limit of open files."""

import logging
import os
import resource
import sys
from collections.abc import Iterable

from millstream.process.metrics import Metric, gauge

log = logging.getLogger(__name__)

FILES_FEWEST = 16
FILES_ENOUGH = 8_192
"""Enough for one file per partition that is written to. More would only use kernel memory."""


def process_metrics() -> Iterable[Metric]:
    """Yields memory, CPU time and open files, under the names that Prometheus' dashboards expect."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Metric(
        "process_cpu_seconds_total",
        "counter",
        "User and system CPU time spent.",
        (({}, usage.ru_utime + usage.ru_stime),),
    )
    yield gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes())
    yield gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")))
    yield gauge("process_max_fds", "Limit of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def open_as_many_files_as_allowed() -> int:
    """Raises the limit of open files to the hard limit and returns it. Connections count as open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("open files limit not raised", extra={"limit": soft, "error": str(error)})
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def segment_files_max(limit: int) -> int:
    """Returns how many log files may be open at a time: at most half of the process's limit."""
    return max(FILES_FEWEST, min(limit // 2, FILES_ENOUGH))


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
