"""Provides the high watermark of a partition, waits for it, and looks up offsets. `OffsetReader` reads the records."""

from collections.abc import Callable

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.limits import NO_LEADER_EPOCH, NO_TIMESTAMP
from millstream.model.waiters import Cancel
from millstream.partition.epochs import EpochEnd
from millstream.partition.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    FoundOffset,
)
from millstream.partition.offset_reader import OffsetReader
from millstream.partition.replica import Replica
from millstream.partition.watermark import Watermark
from millstream.seams.workers import Workers


def _do_nothing() -> None:
    """Cancel nothing, because the wait is over."""


class Readable:
    """The reading side of a leadership. `millstream.partition.leadership` adds the writing side."""

    _refusal: MillstreamError | None

    def __init__(self, replica: Replica, leader_epoch: LeaderEpoch, workers: Workers) -> None:
        self.replica = replica
        self.topic = replica.topic
        self.key = replica.key
        self.number = replica.key.partition
        self.log = log = replica.log
        self.workers = workers
        self.is_closed = False
        self._watermark = Watermark(log.start_offset, leader_epoch)
        self.reader = OffsetReader(log, self, workers)

    @property
    def waiting(self) -> int:
        """Number of waiting readers and writers."""
        return self._watermark.waiting

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch under which this broker leads the partition."""
        return self._watermark.leader_epoch

    @property
    def high_watermark(self) -> Offset:
        """The offset below which messages are acknowledged and may be read."""
        return self._watermark.offset

    def wait(self, offset: Offset, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once, when `offset` can be read or the partition is closed.

        The call may happen before this returns. `offset` may be any offset after the end. The result cancels the wait.
        """
        if self.is_closed or offset < self._watermark.offset:
            callback()
            return _do_nothing
        return self._watermark.wait(offset, callback)

    def check_leader_epoch(self, epoch: int) -> None:
        """Check the leader epoch that a client expects; -1 means that it expects none.

        Raises FENCED_LEADER_EPOCH for an older epoch and UNKNOWN_LEADER_EPOCH for a newer one.
        """
        current = self._watermark.leader_epoch
        if epoch in (NO_LEADER_EPOCH, current):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise MillstreamError(code, f"the partition is at leader epoch {current}, not {epoch}")

    async def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        """Return the first message at or after a timestamp, or the offset that a special timestamp stands for."""
        self.check_readable()
        if timestamp_ms == LATEST:
            return FoundOffset(self.high_watermark, NO_TIMESTAMP, self.leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            start = self.log.start_offset
            return FoundOffset(start, NO_TIMESTAMP, self.replica.epochs.at(start))
        if timestamp_ms == LATEST_TIERED:
            return NOT_FOUND
        log = self.log
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp, offset = await self.workers.run(log.scan.max_timestamp)
            found: tuple[Offset, int] | None = (offset, timestamp)
        else:
            found = await self.workers.run(lambda: log.scan.offset_for_time(timestamp_ms))
        if found is None or not 0 <= found[0] < self.high_watermark:
            return NOT_FOUND
        return FoundOffset(*found, self.replica.epochs.at(found[0]))

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """Return the end of leader epoch `epoch`, or (-1, -1) if the epoch is unknown."""
        return self.replica.epochs.end_of(epoch, log_end=self.log.end_offset)

    def check_readable(self) -> None:
        """Raise an error if the partition is closed or quarantined.

        The start and end of a quarantined log are unknown, so no request may be answered with them.
        """
        if self.is_closed:
            raise self._refused()
        quarantined = self.log.health.quarantined
        if quarantined is not None:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, quarantined)

    def _refused(self) -> MillstreamError:
        assert self._refusal is not None
        return MillstreamError(self._refusal.code, self._refusal.detail)
