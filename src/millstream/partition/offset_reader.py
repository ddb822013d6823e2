"""Reads a partition at an offset, from the page cache or, if the data must come from disk, in a worker.

Fetch, iterators and push subscriptions share this reader and add their own policies: budgets, long polls, windows.
Each of them calls `read`. If that returns None, it calls `read_cold`. If there is no data yet, it calls `wait`.

Invariant: nothing at or above the read limit is returned. The limit is resolved to an offset when a read begins.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol, cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.waiters import Cancel
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log
from millstream.storage.log.log_reader import Stretch

ColdStretch = tuple[bytes, Offset]
"""Whole batches in memory, and the offset that follows them."""


class ReadLimit(Enum):
    """The end of what a reader may see."""

    HIGH_WATERMARK = auto()
    """The limit of consumers: acknowledged records."""
    LOG_END = auto()
    """The limit of replicas: all batches in the log's files, flushed or not. `wait` does not support it."""


_HIGH_WATERMARK = ReadLimit.HIGH_WATERMARK


class OffsetNotReachedError(MillstreamError):
    """OFFSET_OUT_OF_RANGE for an offset after the log end, which the log may still reach."""


class ReadBounds(Protocol):
    """The part of a partition that readers use: the high watermark, the check for readability, and the notification
    about new data."""

    topic: str
    number: int

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def is_closed(self) -> bool: ...

    def check_readable(self) -> None:
        """Raise an error if the partition is closed or quarantined."""
        ...

    def wait(self, offset: Offset, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once `offset` is below the high watermark or the partition is closed."""
        ...


class OffsetReader:
    """Reads one partition. It has no position, so all readers of the partition share it."""

    __slots__ = ("_bounds", "_log", "_workers")

    def __init__(self, log: Log, bounds: ReadBounds, workers: Workers) -> None:
        self._log = log
        self._bounds = bounds
        self._workers = workers

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        part_bytes: int | None = None,
        max_messages: int | None = None,
        limit: ReadLimit = _HIGH_WATERMARK,
    ) -> Stretch | None:
        """Return whole batches, starting with the one that contains `offset`, and the offset after them.

        The batches are bytes, or a part of a file that can be sent without being read. They have at most `max_bytes`,
        or `part_bytes` for a part of a file. None of them reaches `max_messages` beyond `offset`. The first batch is
        always returned. Returns b"" and `offset` if there is no data yet, and None if the data must be read from disk:
        use `read_cold`. Raises the errors of `check`, and KAFKA_STORAGE_ERROR.
        """
        log, bounds = self._log, self._bounds
        if bounds.is_closed or log.health.quarantined is not None or not log.start_offset <= offset <= log.end_offset:
            self.check(offset)
        end = end_of_limit = bounds.high_watermark if limit is _HIGH_WATERMARK else log.written_offset
        if offset >= end:
            return b"", offset
        if max_messages is not None and offset + max_messages < end:
            whole = log.reader.whole_before(limit=offset + max_messages, offset=offset)
            if whole is None:
                return None
            end = whole
        found = log.reader.read(
            offset, max_bytes=max_bytes, end_offset=end, part_bytes=max_bytes if part_bytes is None else part_bytes
        )
        assert found is None or found[1] <= end_of_limit, "nothing after the read limit is returned"
        return found

    async def read_cold(
        self, offset: Offset, *, max_bytes: int, max_messages: int | None = None, limit: ReadLimit = _HIGH_WATERMARK
    ) -> ColdStretch:
        """Read like `read`, but in a worker that waits for the disk. Verifies the checksum of each batch."""
        self.check(offset)
        end = self._end(limit)
        if offset >= end:
            return b"", offset
        figures = self._log.figures
        begun_s = figures.monotonic_s()
        read = partial(_read_cold, self._log, offset, max_bytes=max_bytes, max_messages=max_messages, end=end)
        try:
            found = await self._workers.run(read)
        except MillstreamError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self.check(offset)  # The log was trimmed or truncated meanwhile.
            raise
        figures.cold_reads.observe(figures.monotonic_s() - begun_s)
        # Compaction may have put `end` inside a batch meanwhile; that batch is below the limit of now.
        assert found[1] <= max(end, self._end(limit)), "nothing after the read limit is returned"
        return found

    def _end(self, limit: ReadLimit) -> Offset:
        return self._bounds.high_watermark if limit is _HIGH_WATERMARK else self._log.written_offset

    def wait(self, offset: Offset, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once, when the high watermark has passed `offset` or the partition is closed.

        The call may happen before this returns. `offset` may be any offset after the end. The result cancels the wait.
        """
        return self._bounds.wait(offset, callback)

    def check(self, offset: int) -> None:
        """Raise an error if `offset` cannot be read.

        Raises OFFSET_OUT_OF_RANGE before the log start, OffsetNotReachedError after the log end, and the error of a
        closed or quarantined partition.
        """
        self._bounds.check_readable()
        log = self._log
        if log.start_offset <= offset <= log.end_offset:
            return
        kind = MillstreamError if offset < log.start_offset else OffsetNotReachedError
        raise kind(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not within {log.start_offset} to {log.end_offset} of "
            f"{self._bounds.topic}-{self._bounds.number}",
        )


def _read_cold(log: Log, offset: Offset, *, max_bytes: int, max_messages: int | None, end: Offset) -> ColdStretch:
    """Read whole batches from disk. Blocking: for workers."""
    reader = log.reader
    if max_messages is not None and offset + max_messages < end:
        whole = reader.whole_before(limit=offset + max_messages, offset=offset, cold=True)
        assert whole is not None, "a cold search waits for the disk, so it always finds the batch"
        end = whole
    found = reader.read(offset, max_bytes=max_bytes, end_offset=end, cold=True)
    assert found is not None, "a cold read waits for the disk, so it always returns data"
    return cast(ColdStretch, found)
