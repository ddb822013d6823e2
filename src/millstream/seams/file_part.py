"""Bytes that lie in a file and need not be read to be sent."""

from typing import NamedTuple, Protocol

PART_BYTES_MIN = 64 * 1024
"""Fewer bytes are read more quickly than they are sent from where they lie."""


class FilePlace(NamedTuple):
    """Where such bytes lie, for a process of the same machine that may open the file by itself.

    The file is meant, not its name: another that has the name by now has another number.
    """

    path: str
    device: int
    inode: int
    position: int
    size_bytes: int


class FilePart(Protocol):
    """A part of a file, which the kernel can hand to a socket without this process ever seeing it.

    It keeps its file open: those who send it slowly get what the file had, whatever happens to the file's name.
    """

    def __len__(self) -> int: ...

    def is_cached(self) -> bool:
        """Whether all of it is in memory, so that `send` would not wait for the device."""
        ...

    def send(self, head: bytes, socket_fd: int) -> int:
        """Send `head` and then the part, as far as the socket takes them; how many bytes it took. OSError when the
        connection is over or the file cannot be read."""
        ...

    def behind(self, size: int) -> "FilePart":
        """What is left when the first `size` bytes are gone."""
        ...

    def read(self, size_max: int) -> bytes:
        """The first bytes of it, read; waits for the device where it must. OSError when the file does not have them."""
        ...

    def place(self) -> FilePlace | None:
        """Where it lies; None where others could not find it there."""
        ...
