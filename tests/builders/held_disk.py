"""A real disk on which nothing becomes durable as long as a test does not want it to."""

import threading
from typing import ClassVar

from millstream.seams.local_disk import LocalDisk, LocalFile

LONG_S = 60.0


class HeldDisk(LocalDisk):
    """A disk whose flushes wait until the test lets them go on."""

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
