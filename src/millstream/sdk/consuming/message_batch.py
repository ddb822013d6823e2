"""Defines the batch of messages of one partition that a consumer returns."""

from typing import Generic, NamedTuple

from millstream.records.message import Message
from millstream.sdk.value_formats import V_co


class MessageBatch(NamedTuple, Generic[V_co]):
    """Messages of one partition in offset order, and the offset that follows them."""

    topic: str
    partition: int
    messages: "list[Message[V_co]]"
    next_offset: int
