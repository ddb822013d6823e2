"""Fetches messages from an offset that the caller keeps, and decodes the stored batches."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_batches
from millstream.records.header import CorruptBatch, each_batch
from millstream.records.record import Record
from millstream.sdk import requests
from millstream.sdk.arguments import INT32_MAX, INT64_MAX, check_number
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.batch_opening import opened
from millstream.sdk.feed.feed_set import log_range
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.leader_call import ask_leader
from millstream.sdk.feed.partition_feed import FetchAt, PartitionFeed, gone
from millstream.sdk.feed.undecodable_batches import open_prefix
from millstream.sdk.reader_defaults import READ_BYTES
from millstream.sdk.responses import FetchedBatches

T = TypeVar("T")

MAX_BYTES = READ_BYTES
MAX_WAIT_MS = 5_000
_TIMEOUT_S = 30.0


class FetchResult(NamedTuple):
    """Messages from the requested offset on, and the offset at which to continue.

    `next_offset` can be more than one after the last message: offsets of removed messages and markers have no message.
    """

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int


def read_batches(answer: FetchedBatches, offset: int, where: TopicPartition) -> FetchResult:
    """Decode the batches and drop messages before `offset`; raises CORRUPT_MESSAGE for a damaged batch.

    A batch that cannot be decoded ends the result; if it is the first, it raises UNDECODABLE_BATCH.
    """
    next_offset = offset
    for _, header in each_batch(answer.batches):
        next_offset = max(next_offset, header.next_offset)
    try:
        records = decode_batches(answer.batches)
    except CorruptBatch:
        feed = PartitionFeed(where, offset)
        messages, next_offset = open_prefix(FetchedChunk(feed, offset, next_offset=next_offset, stored=answer.batches))
        records = [Record(*message[2:]) for message in messages]
    if records and records[0].offset < offset:
        records = [record for record in records if record.offset >= offset]
    return FetchResult(records, next_offset, answer.high_watermark, answer.log_start_offset)


async def get(
    caller: RetryingCaller,
    where: TopicPartition,
    offset: int,
    read: Callable[[FetchedBatches, int], T],
    *,
    max_bytes: int = MAX_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
    timeout_s: float | None = None,
) -> T:
    """Fetch the batches at `offset` and return the result of `read`; fetches again if `read` finds them damaged.

    If there is no message at `offset` yet, the call waits for up to `max_wait_ms`. Raises OFFSET_OUT_OF_RANGE, which
    names the log start offset, if `offset` is before it.
    """
    check_number("offset", offset, least=-INT64_MAX, most=INT64_MAX)
    check_number("max_bytes", max_bytes, least=0, most=INT32_MAX)
    if offset < 0:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{where}: {offset} is not an offset (it must be >= 0)")
    cluster = caller.cluster
    wait = Deadline(max_wait_ms / 1000)
    deadline = Deadline(_TIMEOUT_S + max_wait_ms / 1000 if timeout_s is None else timeout_s)

    async def poll(step: FetchAt) -> T:
        left_ms = min(int(wait.left_s * 1000), INT32_MAX)
        epoch = step.position.leader_epoch
        request = requests.fetch(where, offset, max_bytes=max_bytes, max_wait_ms=left_ms, leader_epoch=epoch)
        async with cluster.polling(step.leader, deadline) as connection:
            answer = await connection.request(request, cluster.timeout_s(deadline, left_ms / 1000))
        return await opened(caller.workers, answer.batches, lambda _: read(answer, offset))

    attempts = Attempts(caller.entropy, wait)
    while True:
        try:
            return await ask_leader(caller, PartitionFeed(where, offset), poll, deadline)
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            nothing = await ahead(caller, where, offset, deadline)
            if not await attempts.pause():
                return read(nothing, offset)


async def ahead(caller: RetryingCaller, where: TopicPartition, offset: int, deadline: Deadline) -> FetchedBatches:
    """Return an empty result for an offset after the log end; raises OFFSET_OUT_OF_RANGE before the log start."""
    start, end = await log_range(caller, where, deadline)
    if offset < start:
        raise gone(where, offset=offset, start=start)
    return FetchedBatches(end, start, memoryview(b""))
