"""Parses the options for start and end positions: one for all partitions, one per topic, or one per partition.

=========================================== =================================================================
option                                      meaning
=========================================== =================================================================
`earliest`, `latest`                        the beginning or the end of every partition (or `beginning`, `end`)
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
from millstream.model.start_words import ACCEPTED_WORDS, BEGINNING, LATEST, start_word
from millstream.model.units import TIME_MS_MAX, looks_like_seconds

_NUMBERED = {-2: BEGINNING, -1: LATEST}
_OFFSET_MAX = 2**63 - 1
_TIME_FORM = "expected a time: ISO 8601 with a zone, like 2026-01-31T12:00:00Z, or milliseconds since 1970"
_OFFSET_FORM = f'use {ACCEPTED_WORDS}, or offsets as JSON, like {{"orders": {{"0": 23, "1": "latest"}}}}'


class BoundKind(Enum):
    """Kind of a start or end position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


class OffsetBound(NamedTuple):
    """A start or end position in one partition; `number` is an offset, or a time in ms."""

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
    """Start or end positions by partition and by topic.

    `otherwise` applies to all other partitions; if it is None, the caller's default does.
    """

    otherwise: OffsetBound | None
    topics: Mapping[str, OffsetBound] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, OffsetBound] = field(default_factory=dict)

    def of(self, where: TopicPartition, default: OffsetBound) -> OffsetBound:
        """Returns the bound of a partition: its own, else its topic's, else `otherwise`, else the default."""
        return self.partitions.get(where) or self.topics.get(where.topic) or self.otherwise or default

    def is_time(self, where: TopicPartition) -> bool:
        return self.of(where, OffsetBound.latest()).kind is BoundKind.TIME


def offset_places(given: str) -> PartitionBounds:
    """Parses `startingOffsets` or `endingOffsets`. Raises ValueError, with the accepted values, for invalid text."""
    text = given.strip()
    if start_word(text) is not None:
        return PartitionBounds(_offset(text))
    return _by_topic(text, _offset, _OFFSET_FORM)


def time_places(given: str) -> PartitionBounds:
    """Parses `startingTimestamp` or `endingTimestamp`.

    Raises ValueError, with the accepted values, for invalid text.
    """
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
    for topic, given in read.items():
        if not isinstance(given, dict):
            topics[topic] = place(given)
            continue
        for number, each in given.items():
            if not number.isdecimal():
                raise ValueError(f"{number!r} is not a partition number; {form}")
            partitions[TopicPartition(topic, int(number))] = place(each)
    return PartitionBounds(None, topics, partitions)


def _offset(given: object) -> OffsetBound:
    word = start_word(given) if isinstance(given, str) else _NUMBERED.get(given) if type(given) is int else None
    if word is not None:
        return OffsetBound.earliest() if word == BEGINNING else OffsetBound.latest()
    if type(given) is not int or not 0 <= given <= _OFFSET_MAX:
        raise ValueError(f"{given!r} is not an offset; {_OFFSET_FORM}")
    return OffsetBound(BoundKind.OFFSET, given)


def _time(given: object) -> OffsetBound:
    if isinstance(given, str) and given.isdecimal():
        given = int(given)
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(_TIME_FORM) from None
        if moment.tzinfo is None:
            raise ValueError(f"{given} has no time zone; {_TIME_FORM}")
        given = round(moment.timestamp() * 1000)
    if type(given) is not int or not 0 <= given <= TIME_MS_MAX:
        raise ValueError(_TIME_FORM)
    if looks_like_seconds(given):
        raise ValueError(f"{given} looks like seconds; give milliseconds ({given * 1000})")
    return OffsetBound(BoundKind.TIME, given)
