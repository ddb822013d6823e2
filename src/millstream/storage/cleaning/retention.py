"""Which segments have had their time. Pure: looks at numbers, touches nothing.

Only whole segments go, so a message outlives its age by at most the time its segment is filled in, which segment_ms
bounds, and the time until somebody looks.
"""

from collections.abc import Sequence
from typing import Protocol

from millstream.storage.log.segment import NO_TIME, Segment


class RetentionBounds(Protocol):
    @property
    def retention_ms(self) -> int: ...

    @property
    def retention_bytes(self) -> int: ...


def expired_segments(segments: Sequence[Segment], bounds: RetentionBounds, now_ms: int, limit: int) -> tuple[int, int]:
    """How many segments from the front may go, and the log start that remains; nothing at or after `limit` goes."""
    excess_bytes = sum(segment.size_bytes for segment in segments) - bounds.retention_bytes
    count, new_start = 0, segments[0].base_offset
    for segment in segments:
        is_last = segment is segments[-1]
        if segment.next_offset > limit or not segment.size_bytes:
            break
        too_old = bounds.retention_ms >= 0 and last_time(segment) + bounds.retention_ms < now_ms
        too_much = bounds.retention_bytes >= 0 and excess_bytes >= segment.size_bytes and not is_last
        if not (too_old or too_much):
            break
        excess_bytes -= segment.size_bytes
        count += 1
        new_start = segment.next_offset
    return count, new_start


def last_time(segment: Segment) -> int:
    """The time of the youngest message; of one without times, when the segment was begun."""
    return segment.max_timestamp if segment.max_timestamp != NO_TIME else segment.created_ms
