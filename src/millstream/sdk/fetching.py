"""Messages from a place that the caller knows, and nobody else keeps; from stored batches to what a reader wants."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_batches
from millstream.records.header import each_batch
from millstream.records.record import Record
from millstream.sdk import requests
from millstream.sdk.arguments import INT32_MAX, INT64_MAX, check_number
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.batch_opening import opened
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.responses import FetchedBatches

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_WAIT_MS = 5_000
_TIMEOUT_S = 30.0


class FetchResult(NamedTuple):
    """Messages from the position asked for on, and where to go on reading.

    `next_offset` may be further than the last message's: places of removed messages and of marks hold none.
    """

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start_offset: int


def read_batches(answer: FetchedBatches, offset: int) -> FetchResult:
    """Open the batches; a damaged one raises CORRUPT_MESSAGE. The first may begin before `offset`; that part is cut."""
    next_offset = offset
    for _, header in each_batch(answer.batches):
        next_offset = max(next_offset, header.next_offset)
    records = decode_batches(answer.batches)
    if records and records[0].offset < offset:
        records = [record for record in records if record.offset >= offset]
    return FetchResult(records, next_offset, answer.high_watermark, answer.log_start_offset)


async def get(
    asking: RetryingCaller,
    where: TopicPartition,
    offset: int,
    read: Callable[[FetchedBatches, int], T],
    max_bytes: int = MAX_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
    timeout_s: float | None = None,
) -> T:
    """What `read` makes of the batches at `offset`; where it finds them damaged, they are fetched again.

    With nothing there yet, and at a place that is not reached, `max_wait_ms` are waited for something to come. A place
    before the beginning is OFFSET_OUT_OF_RANGE, which says where the partition begins.
    """
    check_number("offset", offset, -INT64_MAX, INT64_MAX)
    check_number("max_bytes", max_bytes, 0, INT32_MAX)
    if offset < 0:
        raise MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{where}: {offset} is no offset; they begin at 0")
    cluster = asking.cluster
    wait = Deadline(max_wait_ms / 1000)
    deadline = Deadline(_TIMEOUT_S + max_wait_ms / 1000 if timeout_s is None else timeout_s)

    async def poll() -> T:
        address = await cluster.leader(*where, deadline)
        left_ms = min(int(wait.left_s * 1000), INT32_MAX)
        request = requests.fetch(where, offset, max_bytes=max_bytes, max_wait_ms=left_ms)
        async with cluster.polling(address, deadline) as connection:
            answer = await connection.request(request, cluster.timeout_s(deadline, left_ms / 1000))
        return await opened(asking.workers, answer.batches, lambda _: read(answer, offset))

    attempts = Attempts(asking.entropy, wait)
    while True:
        try:
            return await asking.retrying(poll, deadline, where.topic)
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            nothing = await ahead(asking, where, offset, deadline)
            if not await attempts.pause():
                return read(nothing, offset)


async def ahead(asking: RetryingCaller, where: TopicPartition, offset: int, deadline: Deadline) -> FetchedBatches:
    """Nothing, for an offset that is not reached yet; OFFSET_OUT_OF_RANGE for one that is gone."""
    start = (await asking.leaders({where: BEGINNING}, requests.list_offsets, deadline))[where].offset
    end = (await asking.leaders({where: LATEST}, requests.list_offsets, deadline))[where].offset
    if offset < start:
        raise gone(where, offset, start)
    return FetchedBatches(end, start, memoryview(b""))


def gone(where: TopicPartition, offset: int, start: int) -> MillstreamError:
    """For a place before the beginning."""
    text = f"{where}: offset {offset} is no longer there; the first message that is has offset {start}"
    return MillstreamError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
