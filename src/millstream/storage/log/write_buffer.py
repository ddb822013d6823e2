"""Batches that wait to be written together: where every append is flushed before it counts, one write serves all those
of a round.

Invariant: what is gathered lies between the log's written_offset and its end_offset, without a gap. None of it was
acknowledged, and readers see none of it. It is written before anything else is appended and before a round of group
commit looks at the log. When the disk refuses, none of it counts: the log ends where it ended before, and whoever
waits for it is told.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.records.header import BatchHeader

if TYPE_CHECKING:
    from millstream.storage.log.log import Log

GATHERED_BYTES_MAX = 64 * 1024
"""More is written at once: it would hold the event loop for too long if it were left for later."""


class WriteBuffer:
    """What one log has gathered."""

    __slots__ = ("_abandon", "_bytes_max", "_headers", "_log", "_size_bytes", "on_lost", "on_written", "parts")

    def __init__(self, log: "Log", abandon: Callable[["Log", MillstreamError], None], bytes_max: int) -> None:
        """With 0 for `bytes_max`, everything is written at once."""
        self.parts: list[bytes] = []
        self.on_written: Callable[[], None] | None = None
        """Called when all that was gathered has been written."""
        self.on_lost: Callable[[], None] | None = None
        """Called when all that was gathered is gone."""
        self._log = log
        self._abandon = abandon
        self._bytes_max = bytes_max
        self._headers: list[tuple[int, BatchHeader]] = []
        self._size_bytes = 0

    def add(self, batch: memoryview, header: BatchHeader) -> bool:
        """Take a batch that is stamped with the log's end_offset; whether it was written at once.

        Whoever adds also asks for a commit, which sees to it that it is written. Raises KAFKA_STORAGE_ERROR as
        `Log.append` does.
        """
        log = self._log
        size = self._size_bytes + len(batch)
        if size > self._bytes_max or size > log.settings.segment_bytes or not log.segments:
            log.append(batch, ((0, header),))
            return True
        if log.broken is not None or log.quarantined is not None:
            log.refuse()
        self._headers.append((self._size_bytes, header))
        self.parts.append(bytes(batch))
        self._size_bytes = size
        log.end_offset += header.last_offset_delta + 1
        return False

    def write(self) -> None:
        """Write what has been gathered; raises KAFKA_STORAGE_ERROR when the disk refuses."""
        if not self.parts:
            return
        data, headers = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts), self._headers
        self._clear()
        try:
            self._log.append(data, headers)
        except MillstreamError as error:
            self._lose(error)
            raise
        if self.on_written is not None:
            self.on_written()

    def drop(self, error: MillstreamError) -> None:
        """Forget what has been gathered, since the log takes nothing any more."""
        if self.parts:
            self._clear()
            self._lose(error)

    def _clear(self) -> None:
        self.parts = []
        self._headers = []
        self._size_bytes = 0
        self._log.end_offset = self._log.written_offset

    def _lose(self, error: MillstreamError) -> None:
        if self.on_lost is not None:
            self.on_lost()
        self._abandon(self._log, error)
