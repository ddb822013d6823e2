"""Works out where a reset takes a group: which partitions, and from where to where."""

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
    """So many offsets further, or back."""

    by: int


Target = Position | OffsetShift


def parse_target(text: str, now_ms: int) -> Target:
    """What `--to` says."""
    if _SHIFT.fullmatch(text.strip()):
        return OffsetShift(int(text))
    return parse_position(text, "--to", now_ms, TARGETS)


async def bounds_of(
    client: "WireClient", places: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, OffsetBounds | None]:
    """Beginning and end of those partitions that are there; None where one is quarantined."""
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
    """The partitions to move: those asked for, or all that the group has committed something for."""
    if partitions and len(topics) != 1:
        raise usage_error("--partition needs one --topic that it belongs to")
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
    """Where each partition is taken, never beyond what is there; partitions that are gone are left out.

    PARTITION_QUARANTINED where one is damaged: nobody knows what there is to go on from.
    """
    bounds: dict[TopicPartition, OffsetBounds] = {}
    for where, found_bounds in (await bounds_of(client, places, timeout_s)).items():
        if found_bounds is None:
            raise MillstreamError(
                ErrorCode.PARTITION_QUARANTINED, f"{where} is damaged, so that no place in it is known"
            )
        bounds[where] = found_bounds
    times: dict[TopicPartition, int] = {}
    if not isinstance(target, OffsetShift | Beginning | Latest | Offset):
        found = await client.list_offsets(dict.fromkeys(bounds, target.timestamp_ms), timeout_s=timeout_s)
        # No message is that late: the place is where the next one will be.
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
            raise usage_error(f"the group has committed nothing for {where}, so that cannot be shifted")
        return clamped(before + target.by, bounds)
    return bounds.end
