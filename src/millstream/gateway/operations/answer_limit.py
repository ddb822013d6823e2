"""Bounds the size of a response with messages before it is built; shared by the web API and gRPC.

A compressed batch of a few kilobytes can hold a message of many megabytes, and JSON makes a byte up to six bytes long.
So the size is computed from the messages first. Messages that do not fit are left for the next response.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from millstream.model.errors import ErrorCode, UnreadableError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.feed.undecodable_batches import READ_RAW
from millstream.sdk.watching.read_result import ReadResult, size_of

MESSAGE_BYTES = 512
"""Bytes of a response that a message takes beside its key, its value and its headers, at most."""


class AnswerLimit(NamedTuple):
    """The largest response, and the sizes of messages in it."""

    most_bytes: int
    growth: int
    """Most bytes of the response for each byte of a message."""
    encoded_size: Callable[[Message], int]
    """Returns the size of one message in the response."""

    def bound(self, messages: Sequence[Message]) -> int:
        """Return a size that the response with these messages does not exceed."""
        return self.growth * sum(map(size_of, messages)) + MESSAGE_BYTES * len(messages)

    def count(self, messages: Sequence[Message], left_bytes: int | None = None) -> int:
        """Return how many of the messages fit into what is left of a response, by default a whole one.

        Raises RESPONSE_TOO_LARGE if the first message does not even fit into a response of its own.
        """
        left_bytes = self.most_bytes if left_bytes is None else left_bytes
        if not messages or self.bound(messages) <= left_bytes:
            return len(messages)
        for number, message in enumerate(messages):
            size_bytes = self.encoded_size(message)
            if size_bytes > left_bytes:
                if not number and size_bytes > self.most_bytes:
                    raise self._too_large(message, size_bytes)
                return number
            left_bytes -= size_bytes
        return len(messages)

    def cut(self, results: Mapping[TopicPartition, ReadResult]) -> dict[TopicPartition, ReadResult]:
        """Cut the results so that one response can hold them all. Raises RESPONSE_TOO_LARGE as `count` does."""
        left_bytes, cut = self.most_bytes, dict[TopicPartition, ReadResult]()
        for where, result in results.items():
            messages = result.messages
            count = self.count(messages, left_bytes)
            if count < len(messages):
                result = result._replace(messages=messages[:count], next_offset=messages[count].offset)
            left_bytes -= min(self.bound(result.messages), left_bytes)
            cut[where] = result
        return cut

    def _too_large(self, message: Message, size_bytes: int) -> UnreadableError:
        where, offset = TopicPartition(message.topic, message.partition), message.offset
        text = (
            f"{where}: the message at offset {offset} takes {size_bytes} bytes in a response, at most "
            f"{self.most_bytes} are allowed (a quarter of held_bytes_max); {READ_RAW}, or continue at offset "
            f"{offset + 1} to skip it"
        )
        return UnreadableError(ErrorCode.RESPONSE_TOO_LARGE, text, where, offset=offset, next_offset=offset + 1)
