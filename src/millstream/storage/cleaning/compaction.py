"""Compaction: of each key the last record stays. Two passes over a log: one notes where each key has its last record
in the dirty part, one takes away what comes before it.

A record without a value is a tombstone: it says that its key is gone, and must be seen to be believed. So when
compaction first keeps one, its batch gets a delete horizon, delete_retention_ms from now, and a pass after that time
takes it away. By then all earlier records of its key have gone: a pass reaches from the log's start to where its notes
end, front to back. Records without a key cannot be compacted; where they are from the time before the topic was, they
go.
"""

from collections.abc import Iterator, Sequence

from millstream.records.batch import DECODED_BYTES_MAX, batch_body
from millstream.records.compaction import SLOT_BYTES, OffsetMap
from millstream.records.header import BatchHeader, Bytes, CorruptBatch
from millstream.storage.cleaning.cleanable_range import CleanableRange
from millstream.storage.cleaning.rewriting import RecordSelection, batches_of, is_opaque
from millstream.storage.log.segment import Segment

_SLOTS_MIN = 1024


class Compaction:
    """One pass over a log, within a memory that is given. First `note` all, then it is a predicate for `rewriting`."""

    def __init__(self, dirt: CleanableRange, *, map_bytes: int, delete_retention_ms: int, now_ms: int) -> None:
        self._first_dirty = dirt.first_dirty
        self.end_offset = dirt.end_offset
        """Where the notes end: what lies behind is left for the next pass."""
        self.horizon_ms: int | None = None
        """From when on the first tombstone that this pass kept may go."""
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        self._map = OffsetMap(_slots(dirt.end_offset - dirt.first_dirty, map_bytes), dirt.first_dirty)

    def note(self, segments: Sequence[Segment]) -> Iterator[int]:
        """Note the keys of the dirty part, as far as there is room; each step gives how many bytes it read."""
        for segment in segments:
            if segment.next_offset <= self._first_dirty:
                continue
            for header, data in batches_of(segment):
                if header.next_offset > self._first_dirty and header.record_count and not is_opaque(header):
                    full_at = self._note(header, data)
                    if full_at >= 0:
                        self.end_offset = full_at
                        return
                yield len(data)

    def _note(self, header: BatchHeader, data: memoryview) -> int:
        try:
            body = batch_body(data, 0, header, limit_bytes=DECODED_BYTES_MAX, verify=False)
            return self._map.add(
                body, header.record_count, header.base_offset, header.last_offset_delta, self._first_dirty
            )
        except CorruptBatch:
            return -1  # A client's doing; nobody has looked into it before. It stays as it is.

    def __call__(self, header: BatchHeader, body: Bytes) -> RecordSelection:
        horizon_ms = header.delete_horizon_ms
        drop_tombstones = horizon_ms is not None and horizon_ms <= self._now_ms
        marks, count, tombstones = self._map.judge(
            body,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            self.end_offset,
            drop_tombstones,
        )
        if not tombstones or header.next_offset > self.end_offset:
            return RecordSelection(marks, count)
        new_horizon_ms = self._now_ms + self._delete_retention_ms if horizon_ms is None else None
        self._remember(horizon_ms if new_horizon_ms is None else new_horizon_ms)
        return RecordSelection(marks, count, new_horizon_ms)

    def _remember(self, horizon_ms: int | None) -> None:
        if horizon_ms is not None and (self.horizon_ms is None or horizon_ms < self.horizon_ms):
            self.horizon_ms = horizon_ms


def _slots(offsets: int, map_bytes: int) -> int:
    """A power of two: enough for as many keys as there are offsets, if the memory allows that."""
    wanted = max(_SLOTS_MIN, 2 * offsets)
    most = max(_SLOTS_MIN, map_bytes // SLOT_BYTES)
    return 1 << min(wanted.bit_length(), most.bit_length() - 1)
