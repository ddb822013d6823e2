"""The disk, handed in: storage does its input and output through these two protocols and in no other way.

Every call blocks. What may take long (a flush, a read that misses the page cache) is called through workers by whoever
uses the disk; the disk itself knows nothing of threads. Failures are OSError. Paths are absolute strings.

What a caller may rely on after power was lost:
- bytes written to a file are there only if the file was flushed after they were written; until then each write may be
  there, be missing, or be there in part;
- a name that was made, renamed or removed in a directory is sure only once that directory was flushed.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.seams.file_part import FilePart

Buffer = bytes | bytearray | memoryview


class Closeable(Protocol):
    def close(self) -> None: ...


class DiskFile(Protocol):
    """An open file. It closes itself when the last reference to it goes, so that nobody's read loses its file."""

    def write(self, data: Buffer | Sequence[Buffer], position: int) -> None:
        """Write all of `data` (one buffer, or several after one another) at `position`, or raise OSError.

        After an error any part of it may have been written.
        """
        ...

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""
        ...

    def read_cached(self, size: int, position: int) -> bytes | None:
        """As `read`, but never waits for the device: None when part of it is not in memory."""
        ...

    def part(self, size: int, position: int) -> FilePart | None:
        """Those bytes, unread; None when they are not all in memory, or when this disk has no such thing."""
        ...

    def flush(self) -> None:
        """Bring everything written so far to stable storage. After an error, nothing is known about any of it."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Space(NamedTuple):
    """Of the volume that a directory is on."""

    total_bytes: int
    free_bytes: int
    """Those that this process may use."""


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; with `create`, an absent file is made (its name is not flushed by that)."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, and flush each name that was made; an existing one is left alone."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing a file of the new name."""
        ...

    def flush_directory(self, path: str) -> None:
        """Bring the names in a directory to stable storage."""
        ...

    def space(self, path: str) -> Space:
        """How large the volume of a directory is, and how much of it is free."""
        ...

    def boot_id(self) -> str:
        """Names the time since the machine was started: while it is the same, whatever was written can be read, flushed
        or not. Up to 40 characters, "" where that is not known."""
        ...

    def lock(self, path: str) -> Closeable:
        """Take the lock file for this process until closed, or raise DATA_DIRECTORY_IN_USE, naming who has it."""
        ...
