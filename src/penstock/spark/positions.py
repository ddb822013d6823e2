"""How far a stream is: an offset for each partition, with its topic's id, as Spark keeps it in its checkpoint.

    {"orders": {"id": "3f2c...", "offsets": {"0": 17, "1": 4}, "bytes": {"0": 120}}}

Spark compares these as text, so the same position is always the same text: names and numbers come in order. The id
tells a topic from another of the same name that was made later, whose offsets mean something else. `bytes` is about
what a message took when a batch was made to end there: a batch that is repeated is divided among tasks as it was
before, however the topic has grown, and each task has the same rows again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition


class TopicPosition(NamedTuple):
    topic_id: UUID
    offsets: Mapping[int, int]
    bytes_each: Mapping[int, int] = {}


Positions = Mapping[str, TopicPosition]


def to_json(positions: Positions) -> dict[str, Any]:
    """As values of JSON, in their one order."""
    return {
        topic: {
            "id": str(positions[topic].topic_id),
            "offsets": {str(number): offset for number, offset in sorted(positions[topic].offsets.items())},
            "bytes": {str(number): each for number, each in sorted(positions[topic].bytes_each.items())},
        }
        for topic in sorted(positions)
    }


def from_json(said: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """INVALID_REQUEST for what `to_json` has not made."""
    try:
        return {
            topic: TopicPosition(
                UUID(each["id"]),
                {int(number): int(offset) for number, offset in each["offsets"].items()},
                {int(number): int(size) for number, size in each["bytes"].items()},
            )
            for topic, each in said.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        text = f"the position {said!r} is not one of a stream of the format penstock; is the checkpoint another's?"
        raise PenstockError(ErrorCode.INVALID_REQUEST, text) from None


def positions_of(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, UUID],
    bytes_each: Mapping[TopicPartition, int] | None = None,
) -> dict[str, TopicPosition]:
    """The offsets sorted by topic; a topic of `ids` without any has none."""
    found: dict[str, dict[int, int]] = {topic: {} for topic in ids}
    sizes: dict[str, dict[int, int]] = {topic: {} for topic in ids}
    for where, offset in offsets.items():
        found[where.topic][where.partition] = offset
    for where, size in (bytes_each or {}).items():
        sizes[where.topic][where.partition] = size
    return {topic: TopicPosition(ids[topic], each, sizes[topic]) for topic, each in found.items()}


def offsets_of(positions: Positions) -> dict[TopicPartition, int]:
    """The other way round."""
    return {
        TopicPartition(topic, number): offset
        for topic, each in positions.items()
        for number, offset in each.offsets.items()
    }


def bytes_of(positions: Positions) -> dict[TopicPartition, int]:
    """About what a message takes, where that is known."""
    return {
        TopicPartition(topic, number): size
        for topic, each in positions.items()
        for number, size in each.bytes_each.items()
    }
