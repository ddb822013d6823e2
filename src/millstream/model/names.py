"""Defines the names and ids of topics and partitions, and checks topic names."""

import re
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId

TOPIC_NAME_MAX = 249
NO_TOPIC_ID = TopicId(UUID(int=0))
INTERNAL_PREFIX = "__"
LOCAL_PREFIX = "u."

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """A partition, identified by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionKey(NamedTuple):
    """A partition, identified by its topic's id: a topic that is created again has other keys."""

    topic_id: TopicId
    partition: int


def check_topic_name(name: object) -> None:
    """Raise INVALID_TOPIC with the reason unless `name` is a valid topic name."""
    problem = None
    if not isinstance(name, str):
        raise MillstreamError(ErrorCode.INVALID_TOPIC, f"bad topic name {name!r:.60}: it must be str")
    if not name:
        problem = "it is empty"
    elif len(name) > TOPIC_NAME_MAX:
        problem = f"it has {len(name)} characters; at most {TOPIC_NAME_MAX} are allowed"
    elif name in (".", ".."):
        problem = "'.' and '..' are not allowed"
    elif not _LEGAL.fullmatch(name):
        problem = "only letters, digits, '.', '_' and '-' are allowed"
    if problem:
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise MillstreamError(ErrorCode.INVALID_TOPIC, f"bad topic name {shown!r}: {problem}")


def check_new_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC unless `name` is a valid topic name without a reserved prefix."""
    check_topic_name(name)
    if name.startswith((INTERNAL_PREFIX, LOCAL_PREFIX)):
        raise MillstreamError(
            ErrorCode.INVALID_TOPIC,
            f"bad topic name {name!r}: names that begin with '{INTERNAL_PREFIX}' or '{LOCAL_PREFIX}' are reserved",
        )
