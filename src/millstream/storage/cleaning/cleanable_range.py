"""Selects the segments that compaction may clean, and decides whether a pass is worthwhile. Pure functions.

A log is clean up to some offset. Below it, each key has one record, or a pass has noted which records will go. The
rest of the log is dirty. A pass cleans only closed and flushed segments below the caller's limit. It ends at the first
dirty segment that is younger than min_compaction_lag_ms.

A snapshot beside the log (see `snapshot`) stores the clean offset, and the time at which the first kept tombstone may
be removed (8 bytes, little-endian; -1: no tombstone was kept). If it is lost, the next pass cleans the whole log again.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.storage.cleaning.retention import last_time
from millstream.storage.log.segment import Segment

SNAPSHOT_NAME = "cleaner"
_HORIZON = struct.Struct("<q")
_NO_HORIZON = -1


class CleaningRules(Protocol):
    @property
    def min_compaction_lag_ms(self) -> int: ...

    @property
    def max_compaction_lag_ms(self) -> int: ...

    @property
    def min_cleanable_dirty_ratio(self) -> float: ...


class CleanedRange(NamedTuple):
    """The offset up to which a log is clean, and the time when the first tombstone below it may be removed."""

    offset: int = 0
    horizon_ms: int | None = None

    def pack(self) -> bytes:
        return _HORIZON.pack(_NO_HORIZON if self.horizon_ms is None else self.horizon_ms)

    @classmethod
    def of(cls, found: tuple[int, bytes] | None) -> "CleanedRange":
        """Decode a snapshot. A missing or invalid one means that nothing is clean."""
        if found is None or len(found[1]) != _HORIZON.size:
            return cls()
        (horizon_ms,) = _HORIZON.unpack(found[1])
        return cls(found[0], None if horizon_ms == _NO_HORIZON else horizon_ms)


class CleanableRange(NamedTuple):
    """The segments that a pass over a log may clean, and the reason to begin one."""

    segments: list[Segment]
    """The segments that may be cleaned, from the first one of the log on."""
    first_dirty: int
    ratio: float
    """The share of dirty bytes in these segments."""
    is_due: bool

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.first_dirty


def cleanable_range_of(
    segments: Sequence[Segment],
    rules: CleaningRules,
    cleaned: CleanedRange,
    *,
    start_offset: int,
    limit: int,
    now_ms: int,
) -> CleanableRange:
    """Select the segments below `limit` that may be cleaned."""
    first_dirty = max(cleaned.offset, start_offset)
    cleanable: list[Segment] = []
    for segment in segments[:-1]:
        is_settled = (
            segment.is_closed and segment.is_named and segment.failed is None and segment.flushed == segment.end
        )
        is_dirty = segment.next_offset > first_dirty
        if not is_settled or segment.next_offset > limit or (is_dirty and _is_young(segment, rules, now_ms)):
            break
        cleanable.append(segment)
    dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    ratio = dirty_bytes / max(1, sum(segment.size_bytes for segment in cleanable))
    has_waited = bool(dirty) and now_ms - dirty[0].created_ms >= rules.max_compaction_lag_ms
    may_lose_tombstones = bool(cleanable) and cleaned.horizon_ms is not None and cleaned.horizon_ms <= now_ms
    is_due = ratio > rules.min_cleanable_dirty_ratio or has_waited or may_lose_tombstones
    return CleanableRange(cleanable, first_dirty, ratio, is_due)


def _is_young(segment: Segment, rules: CleaningRules, now_ms: int) -> bool:
    lag_ms = rules.min_compaction_lag_ms
    return lag_ms > 0 and last_time(segment) + lag_ms > now_ms
