"""Memory that is warm for every broker alike, on virtual machines that hand free memory back to their host.

Such a machine can pay for the first touch of every page anew: a plain write of 1 GB into the page cache was seen to
take 0.2 or 1.6 seconds of system time, by whether its pages had been in use a moment before. That would be charged to
whichever broker comes first. Ballast holds memory before a load and lets go of it, a little at a time and faster than
the load can take it, so that there are always warm pages to grow into. On a machine without that habit it does nothing.
"""

import mmap
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PIECE_BYTES = 32 * 1024 * 1024
_GAP_S = 0.05


class Ballast:
    """Taken on when made, as many bytes as a load will write; let go of inside the `with` block."""

    def __init__(self, size_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        count = min(size_bytes, _available_bytes() // 4) // _PIECE_BYTES
        self._pieces = [mmap.mmap(-1, _PIECE_BYTES, flags=flags) for _ in range(count)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._let_go, name="ballast")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _let_go(self) -> None:
        while self._pieces:
            self._pieces.pop().close()
            self._over.wait(_GAP_S)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
