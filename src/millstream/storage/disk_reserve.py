"""Keeps reserved space in each data directory, so that the broker can free space on a full disk.

Checkpoints, deletions and catalog changes need a little space before they free much. If one of them fails because the
disk is full, the reserve is released and the operation is tried again. While the reserve is released, appends are
refused, so that they do not take its space. The reserve is restored once the disk has room for it and for new writes.

File `reserve`: allocated space without content. It is removed when released. A start on a full disk releases it first.
"""

import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from millstream.seams.disk import Disk, Space
from millstream.seams.workers import Workers

FILE_NAME = "reserve"
RESERVE_BYTES = 16 * 2**20
_RESERVE_DIVISOR = 50
LOW_BYTES = 2**30
_LOW_DIVISOR = 20
_MEASURED_EVERY_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
T = TypeVar("T")

_logger = logging.getLogger(__name__)


class DiskLimits(NamedTuple):
    """The configured sizes. On a small volume, sizes up to the default are limited to a share of the volume."""

    reserve_bytes: int = RESERVE_BYTES
    low_bytes: int = LOW_BYTES

    def reserve_of(self, space: Space) -> int:
        if self.reserve_bytes > RESERVE_BYTES:
            return self.reserve_bytes
        return min(self.reserve_bytes, space.total_bytes // _RESERVE_DIVISOR)

    def low_of(self, space: Space) -> int:
        return self.low_bytes if self.low_bytes > LOW_BYTES else min(self.low_bytes, space.total_bytes // _LOW_DIVISOR)


NO_DISK_LIMITS = DiskLimits(reserve_bytes=0, low_bytes=0)


def is_full(error: BaseException) -> bool:
    """Return True if an operation failed because the disk is full."""
    return isinstance(error, OSError) and error.errno in _FULL


class DiskReserve:
    """The reserve and the free space of one data directory. Methods that block say so; they run in workers."""

    def __init__(self, disk: Disk, directory: str, limits: DiskLimits) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self.is_released = False
        """True while appends are refused because the reserve is in use."""
        self.space: Space | None = None
        """The space of the volume when it was last measured."""
        self._disk = disk
        self.directory = directory
        self._limits = limits
        self._measured_s: float | None = None

    @property
    def is_low(self) -> bool:
        """True if the volume had less free space than configured when it was last measured."""
        return self.space is not None and self.space.free_bytes < self._limits.low_of(self.space)

    def is_due(self, now_s: float) -> bool:
        """Return True if the last measurement is old; then the caller measures."""
        if self._measured_s is not None and now_s - self._measured_s < _MEASURED_EVERY_S:
            return False
        self._measured_s = now_s
        return True

    def open(self) -> None:
        """Create the reserve, or release it if the disk is full (blocking).

        Without space for the reserve, appends are refused until there is some. A failure is logged: there is no reserve
        then.
        """
        try:
            space = self.space = self._disk.space(self.directory)
            size_bytes = self._limits.reserve_of(space)
            if not self._disk.exists(self.path):
                if not self._try_restore(space, size_bytes):
                    extra = {"path": self.path, "free_bytes": space.free_bytes}
                    _logger.warning("disk reserve missing, writes are refused until there is space", extra=extra)
            elif space.free_bytes < size_bytes:
                self.release(f"only {space.free_bytes} bytes are free at the start")
        except OSError as error:
            _logger.error("disk reserve not created", extra={"path": self.path, "error": str(error)})

    def measure(self) -> None:
        """Measure the free space, and restore a released reserve if possible (blocking). Raise OSError."""
        space = self.space = self._disk.space(self.directory)
        if self.is_released and self._try_restore(space, self._limits.reserve_of(space)):
            _logger.info("disk reserve restored", extra={"path": self.path, "free_bytes": space.free_bytes})

    def measure_full_disk(self) -> None:
        """Measure the free space at once, because a write found the disk full. The next measurement may be far off.

        This is one system call on the disk that has just answered, so it does not need a worker.
        """
        try:
            self.space = self._disk.space(self.directory)
        except OSError:
            pass  # The failed write is logged, and `measure` reports this failure.

    async def make_room(self, workers: Workers) -> bool:
        """Release the reserve because the disk is full. Return True if the failed operation is worth a repetition."""
        return await workers.run(partial(self.release, "an operation that frees space needs it"))

    def release(self, reason: str) -> bool:
        """Remove the file, so that its space is free (blocking). Return False if there is none."""
        if not self._disk.exists(self.path):
            return False
        self.is_released = True
        self._disk.remove(self.path)
        _logger.warning("disk reserve released", extra={"path": self.path, "error": reason})
        return True

    def _try_restore(self, space: Space, size_bytes: int) -> bool:
        """Allocate the file if as much space remains free for new writes. Return True if it exists then."""
        self.is_released = size_bytes > 0 and space.free_bytes < 2 * size_bytes
        if not self.is_released and size_bytes:
            file = self._disk.open(self.path, create=True)
            try:
                file.allocate(size_bytes)
            except OSError as error:
                if not is_full(error):
                    raise
                self.release("the disk became full")
            finally:
                file.close()
        return not self.is_released


async def with_room(work: Callable[[], Awaitable[T]], reserve: DiskReserve, workers: Workers) -> T:
    """Run `work`. If it fails because the disk is full, release the reserve and run it once more."""
    try:
        return await work()
    except OSError as error:
        if not is_full(error) or not await reserve.make_room(workers):
            raise
    return await work()
