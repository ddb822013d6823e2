"""Defines a part of a file that the kernel can send to a socket without a copy through this process."""

from typing import NamedTuple, Protocol

PART_BYTES_MIN = 64 * 1024
"""Smaller parts are faster to read and send than to send from the page cache."""


class FilePlace(NamedTuple):
    """The location of a file part, for another process of this machine that opens the file itself.

    Device and inode identify the file, because another file may have the same name by the time it is opened.
    """

    path: str
    device: int
    inode: int
    position: int
    size_bytes: int


class FilePart(Protocol):
    """A part of a file that the kernel sends to a socket without a copy through this process.

    It keeps its file open, so a slow receiver gets the original bytes even if the file is renamed or removed.
    """

    def __len__(self) -> int: ...

    def is_cached(self) -> bool:
        """Return True if the whole part is in memory, so that `send` does not wait for the device."""
        ...

    def send(self, head: bytes, socket_fd: int) -> int:
        """Send `head` and then the part, as far as the socket accepts them, and return the number of bytes sent.

        Raise OSError if the connection is closed or the file cannot be read.
        """
        ...

    def behind(self, size: int) -> "FilePart":
        """The part without its first `size` bytes."""
        ...

    def read(self, size_max: int) -> bytes:
        """Read up to `size_max` first bytes of the part, waiting for the device if necessary.

        Raise OSError if the file has fewer bytes.
        """
        ...

    def place(self) -> FilePlace | None:
        """The location of the part, or None if other processes cannot find it."""
        ...
