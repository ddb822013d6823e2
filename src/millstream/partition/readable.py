"""The reading side of a partition: what lies below the high watermark, and waiting for more.

Invariant: nothing at or above the high watermark is handed to a reader.
"""

from collections.abc import Callable

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP
from millstream.model.waiters import Cancel, Waiters
from millstream.partition.epochs import EpochEnd, Epochs
from millstream.partition.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    FoundOffset,
)
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log
from millstream.storage.log.log_reader import Stretch


def _nothing() -> None:
    pass


class Readable:
    """Read and wait. The rest of a partition is in `millstream.partition.partition`."""

    _epochs: Epochs
    _refusal: MillstreamError | None

    def __init__(self, topic: str, log: Log, leader_epoch: int, workers: Workers) -> None:
        self.topic = topic
        self.number = log.key.partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = log.start_offset
        self.workers = workers
        self.is_closed = False
        self._waiters = Waiters()

    @property
    def waiting(self) -> int:
        """How many readers wait here."""
        return len(self._waiters)

    def read(self, offset: int, max_bytes: int, part_bytes: int | None = None) -> Stretch | None:
        """Whole batches from the one that contains `offset`, many of them unread, and the offset that follows; b"" when
        there is nothing yet; None: use `read_cold`. At most `max_bytes`, or `part_bytes`, where that is given, of what
        stays unread, but always the first batch. Raises what `check_offset` raises."""
        self.check_offset(offset)
        if offset >= self.high_watermark:
            return b"", offset
        return self.log.lend(offset, max_bytes, self.high_watermark, part_bytes)

    async def read_cold(self, offset: int, max_bytes: int) -> bytes:
        """As `read`, waiting for the disk where it must."""
        self.check_offset(offset)
        log, high_watermark = self.log, self.high_watermark
        if offset >= high_watermark:
            return b""
        return await self.workers.run(lambda: log.read_cold(offset, max_bytes, high_watermark))

    def wait(self, offset: int, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once, as soon as `offset` can be read or the partition is closed: perhaps at once, before
        this returns. The offset may lie anywhere beyond the end. The result stops the waiting."""
        if self.is_closed or offset < self.high_watermark:
            callback()
            return _nothing
        return self._waiters.add(offset, callback)

    def check_leader_epoch(self, epoch: int) -> None:
        """Whether a client that believes in leader epoch `epoch` (-1: in none) may be served: FENCED_LEADER_EPOCH when
        it is behind, UNKNOWN_LEADER_EPOCH when it is ahead."""
        if epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise MillstreamError(code, f"the partition is at leader epoch {self.leader_epoch}, not {epoch}")

    async def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        """The first message at or after a time, or what one of the special times stands for."""
        self._check_readable()
        if timestamp_ms == LATEST:
            return FoundOffset(self.high_watermark, NO_TIMESTAMP, self.leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            start = self.log.start_offset
            return FoundOffset(start, NO_TIMESTAMP, self._epochs.at(start))
        if timestamp_ms == LATEST_TIERED:
            return NOT_FOUND
        log = self.log
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp, offset = await self.workers.run(log.max_timestamp)
            found: tuple[int, int] | None = (offset, timestamp)
        else:
            found = await self.workers.run(lambda: log.offset_for_time(timestamp_ms))
        if found is None or not 0 <= found[0] < self.high_watermark:
            return NOT_FOUND
        return FoundOffset(*found, self._epochs.at(found[0]))

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where leader epoch `epoch` ended; (-1, -1) when it is not known."""
        return self._epochs.end_of(epoch, self.log.end_offset)

    def check_offset(self, offset: int) -> None:
        """OFFSET_OUT_OF_RANGE before the start or beyond the end; whatever reading refuses."""
        self._check_readable()
        log = self.log
        if not log.start_offset <= offset <= log.end_offset:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.start_offset} to {log.end_offset} of {self.topic}-{self.number}",
            )

    def _check_readable(self) -> None:
        """A quarantined log knows neither of its ends: whatever were said about them would be believed."""
        if self.is_closed:
            raise self._refused()
        if self.log.quarantined is not None:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, self.log.quarantined)

    def _refused(self) -> MillstreamError:
        assert self._refusal is not None
        return MillstreamError(self._refusal.code, self._refusal.detail)
