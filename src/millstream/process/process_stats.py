"""Figures of this process, as the kernel has them."""

import logging
import os
import resource
from collections.abc import Iterable

from millstream.process.metrics import Metric, gauge

log = logging.getLogger(__name__)

FILES_FEWEST = 256
FILES_ENOUGH = 8_192
"""One file of each partition that is written to; more would only cost the kernel memory."""


def process_metrics() -> Iterable[Metric]:
    """Memory, CPU time and open files under the names that Prometheus' dashboards expect."""
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
    """Raise the limit of open files to what the system lets this user have, and tell it: connections count too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays as it is", extra={"limit": soft, "why": str(error)})
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_ENOUGH if limit == resource.RLIM_INFINITY else limit


def segment_files_max(limit: int) -> int:
    """How many files of logs may be open at a time, of all that the process may have: half are for connections."""
    return max(FILES_FEWEST, min(limit // 2, FILES_ENOUGH))


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
