"""How much of a log compaction has not seen yet, and whether that is worth a pass. Pure: looks at numbers.

A log is clean up to some offset: before it each key has one record, or will lose the others in a pass that was already
counted. What comes behind is dirty. Cleaned are closed segments only, flushed ones, and below what the caller allows;
of the dirty ones none from the first on that is younger than min_compaction_lag_ms.

How far a log is clean is kept beside it as a snapshot (see `snapshot`), with the time at which the first tombstone that
was kept may go (8 bytes, little-endian; -1: none was kept). A lost one costs another pass over all of the log.
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
    """How far a log is clean, and from when on a tombstone in that part may go."""

    offset: int = 0
    horizon_ms: int | None = None

    def pack(self) -> bytes:
        return _HORIZON.pack(_NO_HORIZON if self.horizon_ms is None else self.horizon_ms)

    @classmethod
    def of(cls, found: tuple[int, bytes] | None) -> "CleanedRange":
        """What a snapshot says, or that nothing is known."""
        if found is None or len(found[1]) != _HORIZON.size:
            return cls()
        (horizon_ms,) = _HORIZON.unpack(found[1])
        return cls(found[0], None if horizon_ms == _NO_HORIZON else horizon_ms)


class CleanableRange(NamedTuple):
    """What a pass over a log would have to do."""

    segments: list[Segment]
    """Those that may be cleaned, from the log's first one on."""
    first_dirty: int
    ratio: float
    """The share of dirty bytes in all of them."""
    is_due: bool

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.first_dirty


def cleanable_range_of(
    segments: Sequence[Segment], rules: CleaningRules, cleaned: CleanedRange, start_offset: int, limit: int, now_ms: int
) -> CleanableRange:
    """What there is to be cleaned below `limit`."""
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
