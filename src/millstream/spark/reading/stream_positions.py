"""Encodes how far a stream has read, as Spark stores it in its checkpoint: an offset per partition, and each topic's
id.

    {"#format": "millstream-1",
     "orders": {"id": "3f2c...", "offsets": {"0": 17, "1": 4}, "bytes": {"0": 120}, "epochs": {"0": 3}}}

`#format` cannot be the name of a topic. It marks a position as Millstream's: other checkpoints are refused.

Spark compares positions as text, so equal positions must have equal text: topics and partition numbers are sorted. `id`
distinguishes a topic from a later one of the same name, whose offsets mean something else. `bytes` is the estimated
size of a message when the batch was planned. With it, a repeated batch is divided into the same tasks as before, even
if the topic has grown, and each task has the same rows again.

Spark stores where each batch ends, but not where the first one begins: after a restart it asks for that again. So
`began` records the start of the stream, in the initial position and in the end position of the first batch. Later
positions have none.

`epochs` are the leader epochs at that time. They show later whether the log was truncated below what was read; messages
written since then have the same offsets as lost ones. If the policy allows reading to continue, `resumed` is the offset
where it continued. `resumed` is also where reading began in a partition that was added later and had already lost its
first messages. Both are omitted if empty, as in older checkpoints.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition

FORMAT = "millstream-1"
_FORMAT_KEY = "#format"


class TopicPosition(NamedTuple):
    """Progress of the stream in one topic, by partition number."""

    topic_id: UUID
    offsets: Mapping[int, int]
    bytes_each: Mapping[int, int] = {}
    began: Mapping[int, int] | None = None
    epochs: Mapping[int, int] = {}
    resumed: Mapping[int, int] = {}

    @property
    def is_first(self) -> bool:
        """True if nothing was read before this position."""
        return self.began == self.offsets


Positions = Mapping[str, TopicPosition]


def to_json(positions: Positions) -> dict[str, Any]:
    """Returns the positions as JSON values, sorted, so that equal positions have equal text."""
    stored: dict[str, Any] = {_FORMAT_KEY: FORMAT}
    for topic in sorted(positions):
        each = positions[topic]
        stored[topic] = {
            "id": str(each.topic_id),
            "offsets": _encoded(each.offsets),
            "bytes": _encoded(each.bytes_each),
        }
        if each.began is not None:
            stored[topic]["began"] = _encoded(each.began)
        if each.epochs:
            stored[topic]["epochs"] = _encoded(each.epochs)
        if each.resumed:
            stored[topic]["resumed"] = _encoded(each.resumed)
    return stored


def _encoded(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): number for partition, number in sorted(numbers.items())}


def from_json(stored: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """Returns the positions that `to_json` encoded. Raises INVALID_REQUEST for anything else."""
    found = stored.get(_FORMAT_KEY)
    if found != FORMAT:
        text = (
            f"the checkpoint has the unknown format {found!r} (expected {FORMAT!r}): it belongs to another source or "
            "version; start the query with a new checkpoint directory"
        )
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
    try:
        return {
            topic: TopicPosition(
                UUID(each["id"]),
                _numbers(each["offsets"]),
                _numbers(each["bytes"]),
                _numbers(each["began"]) if "began" in each else None,
                _numbers(each.get("epochs", {})),
                _numbers(each.get("resumed", {})),
            )
            for topic, each in stored.items()
            if topic != _FORMAT_KEY
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        text = f"the checkpoint has a damaged position, {stored!r}; start the query with a new checkpoint directory"
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text) from None


def _numbers(stored: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in stored.items()}


Numbers = Mapping[TopicPartition, int]


def positions_of(
    offsets: Numbers,
    ids: Mapping[str, UUID],
    bytes_each: Numbers | None = None,
    epochs: Numbers | None = None,
    resumed: Numbers | None = None,
) -> dict[str, TopicPosition]:
    """Groups offsets and the other numbers by topic. A topic of `ids` without offsets gets an empty position."""
    all_of, sizes, leaders, places = (_by_topic(each or {}) for each in (offsets, bytes_each, epochs, resumed))
    return {
        topic: TopicPosition(
            topic_id,
            all_of.get(topic, {}),
            sizes.get(topic, {}),
            epochs=leaders.get(topic, {}),
            resumed=places.get(topic, {}),
        )
        for topic, topic_id in ids.items()
    }


def _by_topic(numbers: Numbers) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for where, number in numbers.items():
        found.setdefault(where.topic, {})[where.partition] = number
    return found


def beginning(positions: Positions) -> dict[str, TopicPosition]:
    """Returns the positions marked as the start of the stream."""
    return {topic: each._replace(began=each.offsets) for topic, each in positions.items()}


def following(before: Positions, after: Positions, starts: Numbers) -> dict[str, TopicPosition]:
    """Returns the position `after` a batch, with `began` filled in if the batch was the stream's first.

    A topic that did not exist before the first batch, or was recreated, gets `began` from `starts`. If the batch reads
    nothing of a topic, its `began` does not change.
    """
    is_beginning = all(each.is_first for each in before.values())
    began = _by_topic(starts)
    found = dict(after)
    for topic, new in after.items():
        old = before.get(topic)
        if old is None or old.topic_id != new.topic_id:
            if is_beginning:
                found[topic] = new._replace(began=began.get(topic, {}))
        elif old.is_first or new.offsets == old.offsets:
            found[topic] = new._replace(began=old.began)
    return found


def begun(start: Positions, end: Positions) -> dict[str, TopicPosition]:
    """Returns where a batch that ends at `end` begins.

    That is `start`, except for the stream's first batch: a repeated first batch begins where it began before, which
    `end` records.
    """
    found = dict(start)
    for topic, each in start.items():
        began = end[topic].began if topic in end else None
        if each.is_first and began is not None:
            found[topic] = TopicPosition(end[topic].topic_id, began)
    return found


def offsets_of(positions: Positions) -> dict[TopicPartition, int]:
    """Returns the offsets by partition."""
    return _flat({topic: each.offsets for topic, each in positions.items()})


def bytes_of(positions: Positions) -> dict[TopicPartition, int]:
    """Returns the estimated message sizes by partition, for partitions that have one."""
    return _flat({topic: each.bytes_each for topic, each in positions.items()})


def epochs_of(positions: Positions) -> dict[TopicPartition, int]:
    """Returns the leader epochs by partition, for partitions that have one."""
    return _flat({topic: each.epochs for topic, each in positions.items()})


def resumed_of(positions: Positions) -> dict[TopicPartition, int]:
    """Returns the `resumed` offsets by partition: where reading continued after a truncation, or began in a new
    partition.
    """
    return _flat({topic: each.resumed for topic, each in positions.items()})


def _flat(numbers: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): number
        for topic, each in numbers.items()
        for partition, number in each.items()
    }
