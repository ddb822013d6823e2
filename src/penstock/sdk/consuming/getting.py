"""Messages from a place that the caller knows; nobody keeps it."""

from bisect import bisect_left
from functools import partial
from operator import attrgetter

from penstock.model.names import TopicPartition
from penstock.records.batch import decode_messages
from penstock.records.message import Message
from penstock.sdk.answers import FetchedBatches
from penstock.sdk.asking import Asking
from penstock.sdk.fetching import get


async def get_messages(
    asking: Asking, where: TopicPartition, offset: int, max_messages: int | None, max_bytes: int, timeout_s: float
) -> list[Message]:
    """Those from `offset` on; waits so long for the first."""
    read = partial(_messages_of, where)
    messages = await get(asking, where, offset, read, max_bytes, int(timeout_s * 1000))
    return messages if max_messages is None else messages[:max_messages]


def _messages_of(where: TopicPartition, answer: FetchedBatches, offset: int) -> list[Message]:
    messages = decode_messages(answer.batches, *where)
    return messages[bisect_left(messages, offset, key=attrgetter("offset")) :]
