"""Removes segments whose messages exceed the topic's retention time or size.

Only whole segments are removed. So a message may outlive its retention by the time in which its segment is filled,
which segment_ms limits, and by the interval between two retention runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from millstream.model.ids import Offset
from millstream.storage.log.segment import NO_TIME, Segment

if TYPE_CHECKING:
    from millstream.storage.log.log import Log


class RetentionBounds(Protocol):
    @property
    def retention_ms(self) -> int: ...

    @property
    def retention_bytes(self) -> int: ...


def apply_retention(log: "Log", now_ms: int, *, limit: int) -> int:
    """Roll an old segment, and remove expired ones below `limit`. Return the number of removed segments.

    Every message below `limit` is acknowledged. This is cheap, because it reads no file. Raises KAFKA_STORAGE_ERROR.
    """
    health = log.health
    if health.broken is not None or health.quarantined is not None or not log.segments or log.cleaning.lock.locked():
        return 0
    assert limit <= log.acknowledged_offset, "retention removes acknowledged messages only"
    log.roll_if_old()
    log.drop_trimmed()
    if not log.settings.delete:
        return 0
    count, new_start = expired_segments(log.segments, log.settings, now_ms=now_ms, limit=limit)
    if count:
        log.trim(max(new_start, log.start_offset))
    return count


def expired_segments(
    segments: Sequence[Segment], bounds: RetentionBounds, *, now_ms: int, limit: int
) -> tuple[int, Offset]:
    """Count the expired segments from the first on, all below `limit`, and find the log start that remains."""
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
    """The time of the newest message. For a segment without timestamps it is the segment's creation time."""
    return segment.max_timestamp if segment.max_timestamp != NO_TIME else segment.created_ms
