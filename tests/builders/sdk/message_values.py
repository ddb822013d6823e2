"""Returns the values of messages that are certainly no tombstones, for type checkers too."""

from collections.abc import Iterable
from typing import TypeVar

from millstream.records.message import Message

V = TypeVar("V")


def value_of(message: "Message[V]") -> V:
    assert message.value is not None, f"{message} is a tombstone"
    return message.value


def values_of(messages: "Iterable[Message[V]]") -> list[V]:
    return [value_of(message) for message in messages]
