"""Builds the fetch request of reads: what several partitions of one broker hold now, without waiting."""

from collections.abc import Mapping
from typing import cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.feed.partition_feed import FeedPosition, gone
from millstream.sdk.requests import FETCH, fetch_refusal
from millstream.sdk.responses import FetchedBatches, refusal
from millstream.sdk.watching.read_result import WatchLimits
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import FetchedPartition, FetchPartition
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer

Found = FetchedBatches | MillstreamError | None
"""None: the offset is out of the broker's range, and the answer does not contain the range."""


def fetch(
    limits: WatchLimits, positions: Mapping[TopicPartition, FeedPosition]
) -> ApiRequest[dict[TopicPartition, Found]]:
    """Build a fetch of about as many bytes as the limits allow in all; earlier partitions are filled first."""
    rows: dict[str, list[FetchPartition]] = {}
    share_bytes = max(1, limits.size_bytes // len(positions))
    for (topic, partition), (offset, epoch) in positions.items():
        rows.setdefault(topic, []).append(FetchPartition(partition, offset, share_bytes, epoch))

    def encode(version: int) -> list[Buffer]:
        return [write_fetch_request(version, list(rows.items()), max_wait_ms=0, max_bytes=limits.size_bytes)]

    def decode(version: int, frame: memoryview, start: int) -> dict[TopicPartition, Found] | MillstreamError:
        answer = parse_fetch_response(version, frame, start)
        if answer.error:
            return refusal(answer.error, "reading")
        found = {TopicPartition(str(topic), row.partition): row for topic, parts in answer.topics for row in parts}
        if found.keys() != positions.keys():
            raise ValueError("the response names other partitions than the request")
        return {where: _found(where, positions[where].offset, row) for where, row in found.items()}

    return ApiRequest(FETCH, encode, decode)


def _found(where: TopicPartition, offset: int, row: FetchedPartition) -> Found:
    if row.error == ErrorCode.OFFSET_OUT_OF_RANGE.number:
        return _out_of_range(where, offset, row)
    if row.error:
        return fetch_refusal(row, f"reading {where} at offset {offset}")
    return FetchedBatches(row.high_watermark, row.log_start_offset, memoryview(cast(Buffer, row.records)))


def _out_of_range(where: TopicPartition, offset: int, row: FetchedPartition) -> Found:
    """Return no messages for an offset after the log end, and OFFSET_OUT_OF_RANGE for one before the log start."""
    if row.high_watermark < 0 or row.log_start_offset < 0:
        return None
    if offset < row.log_start_offset:
        return gone(where, offset=offset, start=row.log_start_offset)
    return FetchedBatches(row.high_watermark, row.log_start_offset, memoryview(b""))
