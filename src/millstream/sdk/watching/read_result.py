"""What a read gives: messages of a partition from a place that the caller keeps, and where to go on."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.arguments import INT32_MAX, check_number

_offset = attrgetter("offset")


class ReadResult(NamedTuple):
    """Messages of one partition in order, from the place asked for on; none when none came in time.

    `next_offset` is where to go on. It may be further than behind the last message: places of removed messages and of
    marks hold none.
    """

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start_offset: int
    """The first place that is still there, when this was read."""
    high_watermark: int
    """The end of the partition, when this was read."""


class WatchLimits(NamedTuple):
    """What one read gives at most; bytes are those of keys, values and headers, and the first message fits always."""

    messages: int
    size_bytes: int

    @classmethod
    def checked(cls, messages: int, size_bytes: int) -> "WatchLimits":
        """INVALID_SETTING for what limits nothing sensibly."""
        check_number("max_messages", messages, 1, INT32_MAX)
        check_number("max_bytes", size_bytes, 1, INT32_MAX)
        return cls(messages, size_bytes)


def from_on(messages: list[Message], offset: int) -> list[Message]:
    """Those at `offset` and behind."""
    if not messages or messages[0].offset >= offset:
        return messages
    return messages[bisect_left(messages, offset, key=_offset) :]


def size_of(message: Message) -> int:
    size = len(message.key or b"") + len(message.value or b"")
    return size + sum(len(key) + len(value or b"") for key, value in message.headers)


def cut(portion: ReadResult, limits: WatchLimits) -> ReadResult:
    """As much of it as the limits allow."""
    messages = portion.messages
    sizes = list(accumulate(map(size_of, messages[: limits.messages])))
    count = max(bisect_right(sizes, limits.size_bytes), min(1, len(sizes)))
    if count == len(messages):
        return portion
    return portion._replace(messages=messages[:count], next_offset=messages[count].offset)


def share_out(portions: Mapping[TopicPartition, ReadResult], limits: WatchLimits) -> dict[TopicPartition, ReadResult]:
    """All of them within the limits: one after the other gets an even share of what is left."""
    given: dict[TopicPartition, ReadResult] = {}
    left, rest = limits, sum(bool(portion.messages) for portion in portions.values())
    for where, portion in portions.items():
        given[where] = portion
        if portion.messages:
            given[where] = _cut_or_none(portion, WatchLimits(-(-left.messages // rest), -(-left.size_bytes // rest)))
            taken = given[where].messages
            left = WatchLimits(left.messages - len(taken), left.size_bytes - sum(map(size_of, taken)))
            rest -= 1
    return given


def _cut_or_none(portion: ReadResult, limits: WatchLimits) -> ReadResult:
    if limits.messages > 0 and limits.size_bytes > 0:
        return cut(portion, limits)
    return portion._replace(messages=[], next_offset=portion.messages[0].offset)
