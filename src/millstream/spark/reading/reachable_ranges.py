"""What to read of each partition, between two positions, after messages may have gone: the data-loss policy."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.spark.options import DataLoss
from millstream.spark.reading.planning import Range
from millstream.spark.reading.stream_positions import Positions, TopicPosition

ADVICE = "choose with the option dataLoss=earliest to read what is there, or dataLoss=skip to leave it out"

_log = logging.getLogger("millstream.spark")


class ReadableRange(NamedTuple):
    """Where a partition begins and ends, and what is nowhere between the two: its log alone has no such holes."""

    first: int
    next: int
    holes: tuple[tuple[int, int], ...] = ()

    def gone(self, start: int, end: int) -> tuple[int, int] | None:
        """The first offsets of a range that are not there."""
        for first, last in ((0, self.first), *self.holes):
            if max(first, start) < min(last, end):
                return max(first, start), min(last, end)
        return None


def holes(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies between intervals, in order; an empty one says where something ends as well."""
    found: list[tuple[int, int]] = []
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is not None and start > reached:
            found.append((reached, start))
        reached = max(end, reached or 0)
    return found


def still_there(where: TopicPartition, start: int, end: int, reach: ReadableRange, policy: DataLoss) -> tuple[int, int]:
    """The part of a range that is read; OFFSET_OUT_OF_RANGE where some of it is gone and that is a failure.

    What is gone in the middle stays part of it: whoever reads finds nothing there.
    """
    gone = reach.gone(start, end)
    if gone is None:
        return start, end
    text = f"{where}: offsets {gone[0]} to {gone[1] - 1} were to be read, but are gone"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; {ADVICE}")
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)
    if policy is DataLoss.SKIP:
        return end, end
    return (gone[1], end) if gone[0] == start else (start, end)


def recreated(topic: str, before: UUID, now: UUID, policy: DataLoss) -> None:
    """A topic is another one than when the stream began; UNKNOWN_TOPIC_ID where that is a failure."""
    text = f"topic {topic!r} was deleted and made anew: its id was {before} and is {now}"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"{text}; {ADVICE}")
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)


def cut_back(where: TopicPartition, read: int, end: int, policy: DataLoss) -> None:
    """A log has lost its end since it was read: it ended at `end`, and goes on with other messages from there.
    OFFSET_OUT_OF_RANGE where that is a failure."""
    text = f"{where}: offsets {end} to {read - 1} were read, but the log has lost them since, and may have others there"
    if policy is DataLoss.FAIL:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; {ADVICE}")
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)


def between(
    start: Positions,
    end: Positions,
    extents: Mapping[TopicPartition, ReadableRange],
    bytes_each: Mapping[TopicPartition, int],
    policy: DataLoss,
) -> list[Range]:
    """What a batch of a stream reads: partitions that are new are read from what their beginning was."""
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
                raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is gone before it was read")
            first, last = still_there(where, first, end_offset, extents[where], policy)
            size_bytes = (last - first) * bytes_each.get(where, 1)
            ranges.append(Range(topic, position.topic_id, number, first, last, size_bytes))
    return ranges


def _first(before: TopicPosition, after: TopicPosition, number: int, policy: DataLoss) -> int:
    """Where a batch begins in a partition."""
    if before.topic_id != after.topic_id:
        return after.offsets[number] if policy is DataLoss.SKIP else 0
    return after.resumed[number] if is_resumed(before, after, number) else before.offsets.get(number, 0)


def is_resumed(before: TopicPosition, after: TopicPosition, number: int) -> bool:
    """Whether a batch goes on elsewhere than where the one before it ended; the next ones do no more."""
    places = [(each.resumed.get(number), each.epochs.get(number)) for each in (before, after)]
    return number in after.resumed and places[0] != places[1]
