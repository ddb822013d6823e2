"""Computes which partitions an offset reset moves, and from which offset to which."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cli.failures import usage_error
from millstream.cli.positions import TARGETS, Beginning, Latest, Offset, Position, parse_position
from millstream.cli.views.group_progress import OffsetBounds, OffsetMove, clamped
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.admin.topic_sizes import extents

if TYPE_CHECKING:
    from millstream.sdk.wire_client import WireClient

_SHIFT = re.compile(r"[+-]\d{1,18}")


@dataclass(frozen=True, slots=True)
class OffsetShift:
    """A shift by a number of offsets, backward if negative."""

    by: int


Target = Position | OffsetShift


def parse_target(text: str, now_ms: int) -> Target:
    """Parses the value of `--to`: a position, or a shift such as `-3`."""
    if _SHIFT.fullmatch(text.strip()):
        return OffsetShift(int(text))
    return parse_position(text, "--to", now_ms, TARGETS)


async def bounds_of(
    client: "WireClient", places: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, OffsetBounds | None]:
    """Returns the bounds of the partitions that exist. The bounds of a quarantined partition are None."""
    names = list(dict.fromkeys(where.topic for where in places))
    if not names:
        return {}
    view = await client.metadata(names, timeout_s=timeout_s)
    asked = set(places)
    topics = [
        topic._replace(partitions=tuple(row for row in topic.partitions if (topic.name, row.number) in asked))
        for topic in view.topics.values()
    ]
    spans = await extents(client, topics, timeout_s)
    return {
        where: None if (span := spans[where]) is None else OffsetBounds(*span) for where in places if where in spans
    }


async def choose_places(
    client: "WireClient",
    committed: Mapping[TopicPartition, CommittedOffset],
    topics: Sequence[str],
    partitions: Sequence[int],
    timeout_s: float,
) -> list[TopicPartition]:
    """Returns the partitions to move: the requested ones, or all with a committed offset."""
    if partitions and len(topics) != 1:
        raise usage_error("--partition needs exactly one --topic")
    if not topics:
        return sorted(committed)
    places = []
    for topic in topics:
        view = await client.describe_topic(topic, timeout_s=timeout_s)
        numbers = [row.number for row in view.partitions]
        unknown = [number for number in partitions if number not in numbers]
        if unknown:
            raise usage_error(f"topic {topic!r} has no partition {unknown[0]}; it has 0 to {len(numbers) - 1}")
        places += [TopicPartition(topic, number) for number in partitions or numbers]
    return sorted(places)


async def moves(
    client: "WireClient",
    committed: Mapping[TopicPartition, CommittedOffset],
    places: Sequence[TopicPartition],
    target: Target,
    timeout_s: float,
) -> list[OffsetMove]:
    """Returns the move of each partition, limited to its available offsets. Deleted partitions are left out.

    Raises PARTITION_QUARANTINED if a partition is damaged, because its offsets are unknown.
    """
    bounds: dict[TopicPartition, OffsetBounds] = {}
    for where, found_bounds in (await bounds_of(client, places, timeout_s)).items():
        if found_bounds is None:
            raise MillstreamError(ErrorCode.PARTITION_QUARANTINED, f"{where} is damaged, so its offsets are unknown")
        bounds[where] = found_bounds
    times: dict[TopicPartition, int] = {}
    if not isinstance(target, OffsetShift | Beginning | Latest | Offset):
        found = await client.list_offsets(dict.fromkeys(bounds, target.timestamp_ms), timeout_s=timeout_s)
        # No message is that late, so the position is the offset of the next message.
        times = {where: each.offset if each.offset >= 0 else bounds[where].end for where, each in found.items()}
    rows = []
    for where, span in bounds.items():
        before = committed[where].offset if where in committed else None
        rows.append(OffsetMove(where, before, times.get(where, _place(target, where, before, span)), span))
    return rows


def _place(target: Target, where: TopicPartition, before: int | None, bounds: OffsetBounds) -> int:
    if isinstance(target, Beginning):
        return bounds.beginning
    if isinstance(target, Offset):
        return clamped(target.offset, bounds)
    if isinstance(target, OffsetShift):
        if before is None:
            raise usage_error(f"--to: cannot shift {where}, because the group has no committed offset in it")
        return clamped(before + target.by, bounds)
    return bounds.end
