"""What to read of each partition, between two positions, after messages may have gone: the data-loss policy."""

import logging
from collections.abc import Mapping
from uuid import UUID

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition
from penstock.sdk.topic_sizes import Extent
from penstock.spark.options import DataLoss
from penstock.spark.planning import Range
from penstock.spark.positions import Positions

_ADVICE = "choose with the option dataLoss=earliest to read what is there, or dataLoss=skip to leave it out"

_log = logging.getLogger("penstock.spark")


def still_there(where: TopicPartition, start: int, end: int, extent: Extent, policy: DataLoss) -> tuple[int, int]:
    """The part of a range that is read; OFFSET_OUT_OF_RANGE where some of it is gone and that is a failure."""
    if start >= extent.first or end <= start:
        return start, end
    text = f"{where}: offsets {start} to {min(extent.first, end) - 1} were to be read, but are gone"
    if policy is DataLoss.FAIL:
        raise PenstockError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; {_ADVICE}")
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)
    return (end, end) if policy is DataLoss.SKIP else (min(extent.first, end), end)


def recreated(topic: str, before: UUID, now: UUID, policy: DataLoss) -> None:
    """A topic is another one than when the stream began; UNKNOWN_TOPIC_ID where that is a failure."""
    text = f"topic {topic!r} was deleted and made anew: its id was {before} and is {now}"
    if policy is DataLoss.FAIL:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC_ID, f"{text}; {_ADVICE}")
    _log.warning("%s: going on (dataLoss=%s)", text, policy.value)


def between(
    start: Positions,
    end: Positions,
    extents: Mapping[TopicPartition, Extent],
    bytes_each: Mapping[TopicPartition, int],
    policy: DataLoss,
) -> list[Range]:
    """What a batch of a stream reads: partitions that are new are read from their beginning."""
    ranges = []
    for topic, position in end.items():
        before = start.get(topic)
        is_other = before is not None and before.topic_id != position.topic_id
        if before is not None and is_other:
            recreated(topic, before.topic_id, position.topic_id, policy)
        for number, end_offset in sorted(position.offsets.items()):
            where = TopicPartition(topic, number)
            if is_other:
                first = end_offset if policy is DataLoss.SKIP else 0
            else:
                first = 0 if before is None else before.offsets.get(number, 0)
            if first >= end_offset:
                continue
            if where not in extents:
                raise PenstockError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is gone before it was read")
            first, last = still_there(where, first, end_offset, extents[where], policy)
            size_bytes = (last - first) * bytes_each.get(where, 1)
            ranges.append(Range(topic, position.topic_id, number, first, last, size_bytes))
    return ranges
