"""The query process: executes the statements that the broker sends, with limits on memory and CPU time, and no files.

The broker starts this process at the first query (`supervisor.query_process`). A socket to the broker is its standard
input. Each frame in it begins with its length in 4 bytes. The broker sends a JSON object with `sql`, `rows_max` and
`cpu_s`. The response is two frames: a JSON object, and the rows, separated by newlines. The object has `columns` and
`truncated`, or `refused` with a reason, or `out_of_memory`. The process ends at the end of the socket's data.

The kernel enforces the limits, so they hold even when SQLite is busy within one call of a function. This module imports
no other part of the broker than `statement` and `parent_watch`, so that the process starts fast and stays small.
"""

import json
import os
import resource
import struct
from contextlib import suppress

from millstream.catalog.statement import RefusedStatementError, execute
from millstream.process.parent_watch import end_with_parent

LENGTH = struct.Struct("!I")

_OUT_OF_MEMORY = (b'{"out_of_memory": true}', b"")
_NICENESS = 5
"""The broker's own work takes precedence over queries."""


def serve(path: str, memory_bytes: int) -> None:
    """Serves until the broker closes the socket."""
    end_with_parent()
    _limit(memory_bytes)
    with open(0, "rb") as requests, open(0, "wb", closefd=False) as responses, suppress(BrokenPipeError):
        while head := requests.read(LENGTH.size):
            request = json.loads(requests.read(*LENGTH.unpack(head)))
            for part in _answer(path, **request):
                responses.write(LENGTH.pack(len(part)))
                responses.write(part)
            responses.flush()


def _answer(path: str, sql: str, rows_max: int, cpu_s: float) -> tuple[bytes, bytes]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s_max = int(used.ru_utime + used.ru_stime + cpu_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s_max, resource.RLIM_INFINITY))
    try:
        result = execute(path, sql, rows_max)
        header = {"columns": result.columns, "truncated": result.truncated}
        return json.dumps(header).encode(), b"\n".join(result.rows)
    except RefusedStatementError as error:
        return json.dumps({"refused": str(error)}).encode(), b""
    except MemoryError:
        return _OUT_OF_MEMORY


def _limit(memory_bytes: int) -> None:
    os.nice(_NICENESS)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # If the machine runs out of memory, the kernel ends this process before the broker.
    for kind, limit in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
