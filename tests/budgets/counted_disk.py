"""Wraps the real disk: counts each possible system call, and records the buffers of reads and writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.seams.disk import Buffer, Closeable, DiskFile, Space
from millstream.seams.local_disk import LocalDisk


@dataclass(slots=True)
class DiskCounts:
    writes: int = 0
    reads: int = 0
    flushes: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    written: list[Buffer] = field(default_factory=list)
    """The written buffers, recorded while `keeps` is set."""
    read: list[bytes] = field(default_factory=list)
    keeps: bool = False


class _CountedFile:
    def __init__(self, file: DiskFile, counts: DiskCounts, seen: Callable[[], None]) -> None:
        self._file = file
        self._counts = counts
        self._seen = seen

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        parts: Sequence[Buffer] = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        self._counts.writes += 1
        self._counts.bytes_written += sum(map(len, parts))
        if self._counts.keeps:
            self._counts.written += parts
        self._seen()
        self._file.write(data, position)

    def read(self, size: int, position: int) -> bytes:
        return self._count_read(self._file.read(size, position=position))

    def read_cached(self, size: int, position: int) -> bytes | None:
        data = self._file.read_cached(size, position=position)
        if data is None:
            self._counts.reads += 1
            return None
        return self._count_read(data)

    def part(self, size: int, position: int) -> None:
        return None

    def _count_read(self, data: bytes) -> bytes:
        self._counts.reads += 1
        self._counts.bytes_read += len(data)
        if self._counts.keeps:
            self._counts.read.append(data)
        self._seen()
        return data

    def flush(self) -> None:
        self._counts.flushes += 1
        self._file.flush()

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class CountedDisk:
    """A `Disk`; `seen` is called in the middle of each read and write."""

    def __init__(self, counts: DiskCounts, seen: Callable[[], None]) -> None:
        self._disk = LocalDisk()
        self._counts = counts
        self._seen = seen

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return _CountedFile(self._disk.open(path, create=create), self._counts, self._seen)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def flush_directory(self, path: str) -> None:
        self._counts.flushes += 1
        self._disk.flush_directory(path)

    def space(self, path: str) -> Space:
        return self._disk.space(path)

    def boot_id(self) -> str:
        return self._disk.boot_id()

    def lock(self, path: str) -> Closeable:
        return self._disk.lock(path)
