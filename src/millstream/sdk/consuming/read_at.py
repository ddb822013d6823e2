"""Messages from a place that the caller knows; nobody keeps it."""

from bisect import bisect_left
from functools import partial
from operator import attrgetter

from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.message import Message
from millstream.sdk.arguments import INT64_MAX, check_number
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.fetching import get
from millstream.sdk.responses import FetchedBatches

ANSWER_S = 1.0
"""So much later the answer may come that says that there was nothing in time."""


async def get_messages(
    asking: RetryingCaller,
    where: TopicPartition,
    offset: int,
    max_messages: int | None,
    max_bytes: int,
    timeout_s: float,
) -> list[Message]:
    """Those from `offset` on; waits so long for the first, and for brokers that cannot be reached."""
    if max_messages is not None:
        check_number("max_messages", max_messages, 0, INT64_MAX)
    read = partial(_messages_of, where)
    messages = await get(asking, where, offset, read, max_bytes, int(timeout_s * 1000), timeout_s + ANSWER_S)
    return messages if max_messages is None else messages[:max_messages]


def _messages_of(where: TopicPartition, answer: FetchedBatches, offset: int) -> list[Message]:
    messages = decode_messages(answer.batches, *where)
    return messages[bisect_left(messages, offset, key=attrgetter("offset")) :]
