"""How Produce and Fetch, which are written by hand, name a topic: by name in older versions, by id in newer ones."""

from uuid import UUID

from millstream.wire.frame_reader import FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.value_writers import put_string

TopicRef = str | UUID
"""A topic as the version of the request names it."""

NAMED_MAX = 20_000
"""Topics and partitions that one request may name."""


def read_topic(source: FrameReader, by_id: bool, flexible: bool) -> TopicRef:
    if by_id:
        return source.uuid()
    name = source.string(flexible)
    if name is None:
        raise MalformedMessageError("a topic's name may not be null")
    return name


def put_topic(out: bytearray, topic: TopicRef, flexible: bool) -> None:
    if isinstance(topic, str):
        put_string(out, topic, flexible)
    else:
        out += topic.bytes
