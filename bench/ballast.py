"""Provides warm memory for every broker, on virtual machines that return free memory to their host.

On such a machine, the first access of every page can be expensive: a plain write of 1 GB into the page cache took 0.2
or 1.6 seconds of system time, depending on whether its pages had been in use a moment before. The broker that runs
first would be charged for that. Ballast allocates memory before a load and frees it gradually, faster than the load can
allocate it, so there are always warm pages. On other machines it has no effect.
"""

import mmap
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PIECE_BYTES = 32 * 1024 * 1024
_GAP_S = 0.05


class Ballast:
    """Allocates as many bytes as a load will write; frees them gradually inside the `with` block."""

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
