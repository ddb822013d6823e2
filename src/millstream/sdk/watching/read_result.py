"""Defines the result of a read, its limits, and how partitions share the limits of one read."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.arguments import INT32_MAX, Size, as_size, check_number
from millstream.sdk.feed.undecodable_batches import skips_bad_batches

_offset = attrgetter("offset")


class ReadResult(NamedTuple):
    """Messages of one partition in offset order; empty if none arrived in time.

    `next_offset` is the offset of the next read. It may be greater than the last message's offset plus one, because
    removed messages and control records take offsets too.
    """

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start_offset: int
    """The partition's log start offset at the time of the read."""
    high_watermark: int
    """The partition's high watermark at the time of the read."""


class WatchLimits(NamedTuple):
    """The limits of one read. Bytes count keys, values and headers; the first message is returned in any case."""

    messages: int
    size_bytes: int
    skips_bad_batches: bool = False

    @classmethod
    def checked(cls, *, messages: int, size_bytes: Size, on_bad_batch: str = "raise") -> "WatchLimits":
        """Make limits; raises INVALID_SETTING if one is out of its range."""
        check_number("max_messages", messages, least=1, most=INT32_MAX)
        return cls(messages, as_size("max_bytes", size_bytes, most=INT32_MAX), skips_bad_batches(on_bad_batch))


def from_on(messages: list[Message], offset: int) -> list[Message]:
    """Return the messages from `offset` on."""
    if not messages or messages[0].offset >= offset:
        return messages
    return messages[bisect_left(messages, offset, key=_offset) :]


def size_of(message: Message) -> int:
    size = len(message.key or b"") + len(message.value or b"")
    return size + sum(len(key) + len(value or b"") for key, value in message.headers)


def cut(result: ReadResult, limits: WatchLimits) -> ReadResult:
    """Cut a result to the limits."""
    messages = result.messages
    sizes = list(accumulate(map(size_of, messages[: limits.messages])))
    count = max(bisect_right(sizes, limits.size_bytes), min(1, len(sizes)))
    if count == len(messages):
        return result
    return result._replace(messages=messages[:count], next_offset=messages[count].offset)


def share_out(results: Mapping[TopicPartition, ReadResult], limits: WatchLimits) -> dict[TopicPartition, ReadResult]:
    """Cut the results to the limits in all: each in turn gets an even share of what is left."""
    given: dict[TopicPartition, ReadResult] = {}
    left, rest = limits, sum(bool(result.messages) for result in results.values())
    for where, result in results.items():
        given[where] = result
        if result.messages:
            given[where] = _cut_or_none(result, WatchLimits(-(-left.messages // rest), -(-left.size_bytes // rest)))
            taken = given[where].messages
            left = WatchLimits(left.messages - len(taken), left.size_bytes - sum(map(size_of, taken)))
            rest -= 1
    return given


def _cut_or_none(result: ReadResult, limits: WatchLimits) -> ReadResult:
    if limits.messages > 0 and limits.size_bytes > 0:
        return cut(result, limits)
    return result._replace(messages=[], next_offset=result.messages[0].offset)
