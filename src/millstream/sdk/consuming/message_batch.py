"""What a consumer hands out of one partition at a time."""

from typing import NamedTuple

from millstream.records.message import Message


class MessageBatch(NamedTuple):
    """Messages of one partition in order, and where its next ones begin."""

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
