"""Where reading begins and ends, as options say it: for all partitions, for a topic's, or for each.

=========================================== =================================================================
option                                      meaning
=========================================== =================================================================
`earliest`, `latest`                        the beginning or the end of every partition
`{"orders": {"0": 23, "1": "latest"}}`      offsets, or the same words, by topic and partition
`{"orders": "earliest"}`                    for all partitions of a topic
`2026-01-31T12:00:00Z`, `1769860800000`     the first message at or after a time: ISO 8601, or ms since 1970
`{"orders": "2026-01-31T12:00:00Z"}`        times by topic, or by topic and partition
=========================================== =================================================================

As in Spark's Kafka connector, the offset -2 is the beginning and -1 the end.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from millstream.model.names import TopicPartition

_OFFSET_MAX = 2**63 - 1
_TIME_MS_MAX = 2**53
_TIME_FORM = "expected a time: ISO 8601 with a zone, like 2026-01-31T12:00:00Z, or milliseconds since 1970"
_OFFSET_FORM = 'expected earliest, latest, or offsets as JSON, like {"orders": {"0": 23, "1": "latest"}}'


class BoundKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


class OffsetBound(NamedTuple):
    """A place in a partition; `number` is the offset, or the time in ms."""

    kind: BoundKind
    number: int = 0

    @classmethod
    def earliest(cls) -> "OffsetBound":
        return cls(BoundKind.EARLIEST)

    @classmethod
    def latest(cls) -> "OffsetBound":
        return cls(BoundKind.LATEST)


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """A place for every partition; where None is left for the others, the caller's default holds."""

    otherwise: OffsetBound | None
    topics: Mapping[str, OffsetBound] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, OffsetBound] = field(default_factory=dict)

    def of(self, where: TopicPartition, default: OffsetBound) -> OffsetBound:
        return self.partitions.get(where) or self.topics.get(where.topic) or self.otherwise or default

    def is_time(self, where: TopicPartition) -> bool:
        return self.of(where, OffsetBound.latest()).kind is BoundKind.TIME


def offset_places(given: str) -> PartitionBounds:
    """ValueError, saying what is expected, for what is none."""
    text = given.strip()
    if text.lower() in ("earliest", "latest"):
        return PartitionBounds(_offset(text.lower()))
    return _by_topic(text, _offset, _OFFSET_FORM)


def time_places(given: str) -> PartitionBounds:
    """ValueError, saying what is expected, for what is none."""
    text = given.strip()
    return _by_topic(text, _time, _TIME_FORM) if text.startswith("{") else PartitionBounds(_time(text))


def _by_topic(text: str, place: Callable[[object], OffsetBound], form: str) -> PartitionBounds:
    try:
        read = json.loads(text)
    except ValueError:
        raise ValueError(form) from None
    if not isinstance(read, dict) or not read:
        raise ValueError(form)
    topics: dict[str, OffsetBound] = {}
    partitions: dict[TopicPartition, OffsetBound] = {}
    for topic, said in read.items():
        if not isinstance(said, dict):
            topics[topic] = place(said)
            continue
        for number, each in said.items():
            if not number.isdecimal():
                raise ValueError(f"{number!r} is no partition; {form}")
            partitions[TopicPartition(topic, int(number))] = place(each)
    return PartitionBounds(None, topics, partitions)


def _offset(said: object) -> OffsetBound:
    if said in ("earliest", -2):
        return OffsetBound.earliest()
    if said in ("latest", -1):
        return OffsetBound.latest()
    if type(said) is not int or not 0 <= said <= _OFFSET_MAX:
        raise ValueError(f"{said!r} is no offset; {_OFFSET_FORM}")
    return OffsetBound(BoundKind.OFFSET, said)


def _time(said: object) -> OffsetBound:
    if isinstance(said, str) and said.isdecimal():
        said = int(said)
    if isinstance(said, str):
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise ValueError(_TIME_FORM) from None
        if moment.tzinfo is None:
            raise ValueError(f"{said} names no moment without a zone; {_TIME_FORM}")
        said = round(moment.timestamp() * 1000)
    if type(said) is not int or not 0 <= said <= _TIME_MS_MAX:
        raise ValueError(_TIME_FORM)
    return OffsetBound(BoundKind.TIME, said)
