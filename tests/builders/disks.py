"""Provides disks that hold flushes until the test releases them or that have no page cache, and counts open files."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from millstream.seams.local_disk import LocalDisk, LocalFile

LONG_S = 60.0


class HeldDisk(LocalDisk):
    """A disk whose flushes wait until the test releases them."""

    def __init__(self) -> None:
        self.may_flush = threading.Event()
        self.may_flush.set()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        opened = super().open(path, create=create)
        opened.__class__ = HeldFile
        HeldFile.disk = self
        return opened


class HeldFile(LocalFile):
    __slots__ = ()
    disk: ClassVar[HeldDisk]

    def flush(self) -> None:
        self.disk.may_flush.wait(LONG_S)
        super().flush()


class ColdFile(LocalFile):
    """A file whose data is never in the page cache."""

    __slots__ = ()

    def read_cached(self, size: int, position: int) -> bytes | None:
        return None

    def part(self, size: int, position: int) -> None:
        return None


class ColdDisk(LocalDisk):
    def open(self, path: str, *, create: bool = False) -> LocalFile:
        opened = super().open(path, create=create)
        opened.__class__ = ColdFile
        return opened


def open_files_below(folder: Path) -> int:
    """Count the open descriptors of files in `folder`; descriptors that other threads open or close do not count."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{folder}/")
    return count
