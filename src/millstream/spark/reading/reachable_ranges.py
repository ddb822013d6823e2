"""Decides what to read of each partition if messages between two positions no longer exist: the data-loss policy."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.spark.options import DataLoss
from millstream.spark.reading.planning import Range
from millstream.spark.reading.stream_positions import Positions, TopicPosition

ADVICE = "set the option dataLoss=earliest to read what still exists, or dataLoss=skip to skip the range"

_log = logging.getLogger("millstream.spark")


class ReadableRange(NamedTuple):
    """First offset and end offset of a partition, and the ranges between them that exist nowhere.

    Only a partition with an archive can have such holes; a log alone has none.
    """

    first: int
    next: int
    holes: tuple[tuple[int, int], ...] = ()

    def gone(self, start: int, *, end: int) -> tuple[int, int] | None:
        """Returns the first part of a range that no longer exists, or None if all of it exists."""
        for first, last in ((0, self.first), *self.holes):
            if max(first, start) < min(last, end):
                return max(first, start), min(last, end)
        return None


def holes(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the gaps between intervals, in order. An empty interval also marks where a gap begins or ends."""
    found: list[tuple[int, int]] = []
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is not None and start > reached:
            found.append((reached, start))
        reached = max(end, reached or 0)
    return found


def still_there(
    where: TopicPartition, start: int, *, end: int, reach: ReadableRange, policy: DataLoss
) -> tuple[int, int]:
    """Returns the part of a range that is read.

    Raises OFFSET_OUT_OF_RANGE if some of it no longer exists and the policy is FAIL. A hole in the middle stays in the
    returned range; the reader finds no messages there.
    """
    gone = reach.gone(start, end=end)
    if gone is None:
        return start, end
    text = f"{where}: offsets {gone[0]} to {gone[1] - 1} no longer exist"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; {ADVICE}")
    fields = {**where._asdict(), "first_offset": gone[0], "end_offset": gone[1], "data_loss": policy.value}
    _log.warning(LogEvent("offsets lost", **fields))
    if policy is DataLoss.SKIP:
        return end, end
    return (gone[1], end) if gone[0] == start else (start, end)


def recreated(topic: str, before: UUID, now: UUID, policy: DataLoss) -> None:
    """Reports that a topic was recreated after the stream began: UNKNOWN_TOPIC_ID if the policy is FAIL, else a
    warning.
    """
    text = f"topic {topic!r} was deleted and recreated: its id was {before} and is now {now}"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"{text}; {ADVICE}")
    _log.warning(LogEvent("topic recreated", topic=topic, old_id=before, new_id=now, data_loss=policy.value))


def cut_back(where: TopicPartition, read: int, *, end: int, policy: DataLoss) -> None:
    """Reports that a log was truncated to `end` after offsets up to `read` had been read.

    Other messages may have been written at these offsets since. Raises OFFSET_OUT_OF_RANGE if the policy is FAIL, else
    a warning.
    """
    text = f"{where}: the log was truncated: offsets {end} to {read - 1} were read and are lost, or have other messages"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; {ADVICE}")
    fields = {**where._asdict(), "offset": end, "read_to": read, "data_loss": policy.value}
    _log.warning(LogEvent("log truncated", **fields))


def between(
    start: Positions,
    end: Positions,
    extents: Mapping[TopicPartition, ReadableRange],
    bytes_each: Mapping[TopicPartition, int],
    policy: DataLoss,
) -> list[Range]:
    """Returns the ranges that a batch of a stream reads.

    A new partition is read from offset 0, or from `resumed` if its first messages had expired when the stream found it.
    """
    ranges = []
    for topic, position in end.items():
        before = start.get(topic)
        if before is not None and before.topic_id != position.topic_id:
            recreated(topic, before.topic_id, position.topic_id, policy)
        for number, end_offset in sorted(position.offsets.items()):
            where = TopicPartition(topic, number)
            first = position.resumed.get(number, 0) if before is None else _first(before, position, number, policy)
            if first >= end_offset:
                continue
            if where not in extents:
                raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} was deleted before it was read")
            first, last = still_there(where, first, end=end_offset, reach=extents[where], policy=policy)
            size_bytes = (last - first) * bytes_each.get(where, 1)
            ranges.append(Range(topic, position.topic_id, number, first, last, size_bytes))
    return ranges


def _first(before: TopicPosition, after: TopicPosition, number: int, policy: DataLoss) -> int:
    """Returns the offset at which a batch begins to read a partition."""
    if before.topic_id != after.topic_id:
        return after.offsets[number] if policy is DataLoss.SKIP else 0
    return after.resumed[number] if is_resumed(before, after, number) else before.offsets.get(number, 0)


def is_resumed(before: TopicPosition, after: TopicPosition, number: int) -> bool:
    """True if a batch begins at `resumed` instead of where the previous batch ended.

    Later batches carry the same `resumed` with the same leader epoch, and continue where the previous one ended.
    """
    places = [(each.resumed.get(number), each.epochs.get(number)) for each in (before, after)]
    return number in after.resumed and places[0] != places[1]
