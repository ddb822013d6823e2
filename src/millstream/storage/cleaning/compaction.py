"""Compacts a log: only the last record of each key stays.

A pass reads the log twice. First it notes the last offset of each key in the dirty part. Then it removes the earlier
records of these keys.

A record without a value is a tombstone: its key is deleted. Readers must have time to see it. So when compaction first
keeps a tombstone, its batch gets a delete horizon, delete_retention_ms from now, and a pass after that time removes it.
By then all earlier records of its key are gone, because each pass runs from the log's start to the end of its notes.
Records without a key cannot be compacted. Those from before the topic was compacted are removed.
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
    """One pass over a log within a memory limit. Call `note` first; then the object selects records for `rewriting`."""

    def __init__(self, cleanable: CleanableRange, *, map_bytes: int, delete_retention_ms: int, now_ms: int) -> None:
        self._first_dirty = cleanable.first_dirty
        self.end_offset = cleanable.end_offset
        """The offset at which the notes end. The next pass cleans the rest."""
        self.horizon_ms: int | None = None
        """The time when the first tombstone that this pass kept may be removed."""
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        offsets = cleanable.end_offset - cleanable.first_dirty
        self._map = OffsetMap(_slots(offsets, map_bytes=map_bytes), cleanable.first_dirty)

    def note(self, segments: Sequence[Segment]) -> Iterator[int]:
        """Note the keys of the dirty part, as many as fit. Each step yields the number of bytes read."""
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
            # A client sent an invalid batch, which the broker decodes here for the first time. It stays unchanged.
            return -1

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


def _slots(offsets: int, *, map_bytes: int) -> int:
    """The size of the key map: a power of two, with room for one key per offset if the memory limit allows."""
    wanted = max(_SLOTS_MIN, 2 * offsets)
    most = max(_SLOTS_MIN, map_bytes // SLOT_BYTES)
    return 1 << min(wanted.bit_length(), most.bit_length() - 1)
