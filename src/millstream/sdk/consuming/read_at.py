"""Reads messages from an offset that the caller gives, once and without a consumer."""

from functools import partial

from millstream.model.errors import UnreadableError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.arguments import INT64_MAX, check_number
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.fetched_chunk import PIECE_BYTES, FetchedChunk
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.feed.undecodable_batches import open_prefix
from millstream.sdk.fetching import get
from millstream.sdk.responses import FetchedBatches

ANSWER_S = 1.0
"""Extra time for the answer after the broker's wait has expired."""


async def get_messages(
    asking: RetryingCaller,
    where: TopicPartition,
    offset: int,
    *,
    max_messages: int | None,
    max_bytes: int,
    timeout_s: float,
) -> list[Message]:
    """Return messages from `offset` on. Waits up to `timeout_s` for the first message, also while brokers are down.

    A batch that cannot be decoded ends the result; if it is the first, it raises UNDECODABLE_BATCH.
    """
    if max_messages is not None:
        check_number("max_messages", max_messages, least=0, most=INT64_MAX)
    read = partial(_messages_of, where)
    messages = await get(
        asking,
        where,
        offset,
        read,
        max_bytes=max_bytes,
        max_wait_ms=int(timeout_s * 1000),
        timeout_s=timeout_s + ANSWER_S,
    )
    return messages if max_messages is None else messages[:max_messages]


def _messages_of(where: TopicPartition, answer: FetchedBatches, offset: int) -> list[Message]:
    messages: list[Message] = []
    try:
        for chunk in FetchedChunk.each(PartitionFeed(where, offset), answer, PIECE_BYTES):
            more, end = open_prefix(chunk)
            messages += more
            if end < chunk.next_offset:
                break
    except UnreadableError:
        if not messages:
            raise
    return messages
