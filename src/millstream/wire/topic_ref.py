"""Encodes and decodes the topic in Produce and Fetch: a name in older versions, an id in newer ones."""

from millstream.model.ids import TopicId
from millstream.wire.frame_reader import FrameReader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.value_writers import put_string

TopicRef = str | TopicId
"""The name or the id of a topic, depending on the version of the request."""

NAMED_MAX = 20_000
"""Maximum number of topics and partitions in one request."""


def read_topic(source: FrameReader, by_id: bool, flexible: bool) -> TopicRef:
    if by_id:
        return TopicId(source.uuid())
    name = source.string(flexible)
    if name is None:
        raise MalformedMessageError("a topic's name may not be null")
    return name


def put_topic(out: bytearray, topic: TopicRef, flexible: bool) -> None:
    if isinstance(topic, str):
        put_string(out, topic, flexible)
    else:
        out += topic.bytes
