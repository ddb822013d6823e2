"""How far a stream is: an offset for each partition, with its topic's id, as Spark keeps it in its checkpoint.

    {"#format": "millstream-1",
     "orders": {"id": "3f2c...", "offsets": {"0": 17, "1": 4}, "bytes": {"0": 120}, "epochs": {"0": 3}}}

`#format`, which cannot be the name of a topic, marks a position as ours: a checkpoint of another format is refused.

Spark compares these as text, so the same position is always the same text: names and numbers come in order. The id
tells a topic from another of the same name that was made later, whose offsets mean something else. `bytes` is about
what a message took when a batch was made to end there: a batch that is repeated is divided among tasks as it was
before, however the topic has grown, and each task has the same rows again.

Spark keeps where each batch ends, but not where the first begins: it asks for that again. So `began` is the beginning
of the stream, in the position that it begins with and in the one that its first batch ends with; later ones have none.

`epochs` has the leader epochs at that time. By them it is seen later whether the log still has what was read: one that
has lost its end, and was written on from there, has other messages at the same offsets. Where reading goes on all the
same, `resumed` is where; and it is where reading began in a partition that came later and had lost its first messages
by then. Both are left out where there are none, as in checkpoints of before.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition

FORMAT = "millstream-1"
_FORMAT_KEY = "#format"


class TopicPosition(NamedTuple):
    topic_id: UUID
    offsets: Mapping[int, int]
    bytes_each: Mapping[int, int] = {}
    began: Mapping[int, int] | None = None
    epochs: Mapping[int, int] = {}
    resumed: Mapping[int, int] = {}

    @property
    def is_first(self) -> bool:
        """Whether nothing was read before it."""
        return self.began == self.offsets


Positions = Mapping[str, TopicPosition]


def to_json(positions: Positions) -> dict[str, Any]:
    """As values of JSON, in their one order."""
    said: dict[str, Any] = {_FORMAT_KEY: FORMAT}
    for topic in sorted(positions):
        each = positions[topic]
        said[topic] = {"id": str(each.topic_id), "offsets": _said(each.offsets), "bytes": _said(each.bytes_each)}
        if each.began is not None:
            said[topic]["began"] = _said(each.began)
        if each.epochs:
            said[topic]["epochs"] = _said(each.epochs)
        if each.resumed:
            said[topic]["resumed"] = _said(each.resumed)
    return said


def _said(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): number for partition, number in sorted(numbers.items())}


def from_json(said: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """INVALID_REQUEST for what `to_json` has not made."""
    found = said.get(_FORMAT_KEY)
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
            for topic, each in said.items()
            if topic != _FORMAT_KEY
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        text = f"the checkpoint has a damaged position, {said!r}; start the query with a new checkpoint directory"
        raise MillstreamError(ErrorCode.INVALID_REQUEST, text) from None


def _numbers(said: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in said.items()}


Numbers = Mapping[TopicPartition, int]


def positions_of(
    offsets: Numbers,
    ids: Mapping[str, UUID],
    bytes_each: Numbers | None = None,
    epochs: Numbers | None = None,
    resumed: Numbers | None = None,
) -> dict[str, TopicPosition]:
    """The offsets sorted by topic; a topic of `ids` without any has none."""
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
    """The same, as where the stream begins."""
    return {topic: each._replace(began=each.offsets) for topic, each in positions.items()}


def following(before: Positions, after: Positions, starts: Numbers) -> dict[str, TopicPosition]:
    """The position `after` a batch, which keeps where the batch began if that was the stream's beginning: for topics
    that were not there before, or were others, at `starts`. Where a batch reads nothing, it is the same as before."""
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
    """Where a batch to `end` begins: at `start`, or, if that is the stream's beginning, at what was that before."""
    found = dict(start)
    for topic, each in start.items():
        began = end[topic].began if topic in end else None
        if each.is_first and began is not None:
            found[topic] = TopicPosition(end[topic].topic_id, began)
    return found


def offsets_of(positions: Positions) -> dict[TopicPartition, int]:
    """The other way round."""
    return _flat({topic: each.offsets for topic, each in positions.items()})


def bytes_of(positions: Positions) -> dict[TopicPartition, int]:
    """About what a message takes, where that is known."""
    return _flat({topic: each.bytes_each for topic, each in positions.items()})


def epochs_of(positions: Positions) -> dict[TopicPartition, int]:
    """Who led when the position was made, where that is known."""
    return _flat({topic: each.epochs for topic, each in positions.items()})


def resumed_of(positions: Positions) -> dict[TopicPartition, int]:
    """Where reading went on in logs that had lost their ends, or began in new ones without their beginnings."""
    return _flat({topic: each.resumed for topic, each in positions.items()})


def _flat(numbers: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): number
        for topic, each in numbers.items()
        for partition, number in each.items()
    }
