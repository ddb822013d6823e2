"""How far a stream is: an offset for each partition, with its topic's id, as Spark keeps it in its checkpoint.

    {"orders": {"id": "3f2c...", "offsets": {"0": 17, "1": 4}, "bytes": {"0": 120}}}

Spark compares these as text, so the same position is always the same text: names and numbers come in order. The id
tells a topic from another of the same name that was made later, whose offsets mean something else. `bytes` is about
what a message took when a batch was made to end there: a batch that is repeated is divided among tasks as it was
before, however the topic has grown, and each task has the same rows again.

Spark keeps where each batch ends, but not where the first begins: it asks for that again. So `began` is the beginning
of the stream, in the position that it begins with and in the one that its first batch ends with; later ones have none.
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
    began: Mapping[int, int] | None = None

    @property
    def is_first(self) -> bool:
        """Whether nothing was read before it."""
        return self.began == self.offsets


Positions = Mapping[str, TopicPosition]


def to_json(positions: Positions) -> dict[str, Any]:
    """As values of JSON, in their one order."""
    said: dict[str, Any] = {}
    for topic in sorted(positions):
        each = positions[topic]
        said[topic] = {"id": str(each.topic_id), "offsets": _said(each.offsets), "bytes": _said(each.bytes_each)}
        if each.began is not None:
            said[topic]["began"] = _said(each.began)
    return said


def _said(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): number for partition, number in sorted(numbers.items())}


def from_json(said: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """INVALID_REQUEST for what `to_json` has not made."""
    try:
        return {
            topic: TopicPosition(
                UUID(each["id"]),
                _numbers(each["offsets"]),
                _numbers(each["bytes"]),
                _numbers(each["began"]) if "began" in each else None,
            )
            for topic, each in said.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        text = f"the position {said!r} is not one of a stream of the format penstock; is the checkpoint another's?"
        raise PenstockError(ErrorCode.INVALID_REQUEST, text) from None


def _numbers(said: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in said.items()}


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


def beginning(positions: Positions) -> dict[str, TopicPosition]:
    """The same, as where the stream begins."""
    return {topic: each._replace(began=each.offsets) for topic, each in positions.items()}


def following(before: Positions, after: Positions) -> dict[str, TopicPosition]:
    """The position `after` a batch, which keeps where the batch began if that was the stream's beginning. Where a batch
    reads nothing, it is the same as before."""
    found = dict(after)
    for topic, old in before.items():
        new = after.get(topic)
        if new is not None and new.topic_id == old.topic_id and (old.is_first or new.offsets == old.offsets):
            found[topic] = new._replace(began=old.began)
    return found


def begun(start: Positions, end: Positions) -> dict[str, TopicPosition]:
    """Where a batch to `end` begins: at `start`, or, if that is the stream's beginning, at what was that before."""
    found = dict(start)
    for topic, each in start.items():
        began = end[topic].began if topic in end else None
        if each.is_first and began is not None:
            found[topic] = TopicPosition(end[topic].topic_id, began)
    return found


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
