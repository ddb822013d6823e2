"""Defines the injected disk. Storage does all its input and output through these two protocols.

Every call blocks. Callers run slow calls (a flush, a read that misses the page cache) in workers; the disk itself uses
no threads. Failures are OSError. Paths are absolute strings.

Guarantees after a power loss:
- Bytes that were written before a successful flush of their file are intact. Each later write may be complete, partial
  or missing.
- The creation, renaming or removal of a file is durable only after its directory was flushed.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.seams.file_part import FilePart

Buffer = bytes | bytearray | memoryview


class Closeable(Protocol):
    def close(self) -> None: ...


class DiskFile(Protocol):
    """An open file. It is closed with its last reference, so a read in progress never loses its file."""

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        """Write all of `data` (one buffer, or several in sequence) at `position`, or raise OSError.

        After an error, any part of the data may have been written.
        """
        ...

    def read(self, size: int, *, position: int) -> bytes:
        """Read up to `size` bytes from `position`. The result is shorter only at the end of the file."""
        ...

    def read_cached(self, size: int, *, position: int) -> bytes | None:
        """Read `size` bytes without waiting for the device. Return None if some are not in memory or do not exist."""
        ...

    def part(self, size: int, *, position: int) -> FilePart | None:
        """Return a reference to these bytes without reading them.

        The result is None if some of them are not in memory, or if this disk does not support parts.
        """
        ...

    def flush(self) -> None:
        """Bring all written bytes to stable storage. After an error, the state of every unflushed byte is unknown."""
        ...

    def size(self) -> int: ...

    def allocate(self, size: int) -> None:
        """Allocate disk space for the first `size` bytes, or raise OSError. The file may grow by zeros."""
        ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Space(NamedTuple):
    """The size of the volume that holds a directory, and its free space."""

    total_bytes: int
    free_bytes: int
    """The free bytes that this process may use."""


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing. With `create`, create an absent file; its name is not flushed yet."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, and flush each new name. Do nothing if the directory exists."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically. An existing file named `new` is replaced."""
        ...

    def flush_directory(self, path: str) -> None:
        """Bring the names in a directory to stable storage."""
        ...

    def space(self, path: str) -> Space:
        """The size and the free space of the volume that holds the directory."""
        ...

    def boot_id(self) -> str:
        """Identify the current boot of the machine, in up to 40 characters; "" if it is unknown.

        As long as the id is the same, everything written can be read back, flushed or not.
        """
        ...

    def lock(self, path: str) -> Closeable:
        """Lock this file until it is closed. Raise DATA_DIRECTORY_IN_USE with the owner's process id if it is taken."""
        ...
