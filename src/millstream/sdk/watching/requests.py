"""The one request of reads that keep no place: what several partitions of a broker have now."""

from collections.abc import Mapping
from typing import cast

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.fetching import gone
from millstream.sdk.requests import FETCH
from millstream.sdk.responses import FetchedBatches, refusal
from millstream.sdk.watching.read_result import WatchLimits
from millstream.wire.client_connection import ApiRequest
from millstream.wire.fetch import FetchedPartition, FetchPartition
from millstream.wire.fetch_client import parse_fetch_response, write_fetch_request
from millstream.wire.framing import Buffer

Found = FetchedBatches | MillstreamError | None
"""None: the place is out of the range that the broker has, and the broker does not say which that is."""


def fetch(limits: WatchLimits, offsets: Mapping[TopicPartition, int]) -> ApiRequest[dict[TopicPartition, Found]]:
    """About as many bytes in all as the limits allow; the first places have them first, and none waits for more."""
    rows: dict[str, list[FetchPartition]] = {}
    for where, offset in offsets.items():
        rows.setdefault(where.topic, []).append(
            FetchPartition(where.partition, offset, max(1, limits.size_bytes // len(offsets)))
        )

    def encode(version: int) -> list[Buffer]:
        return [write_fetch_request(version, list(rows.items()), max_wait_ms=0, max_bytes=limits.size_bytes)]

    def decode(version: int, frame: memoryview, start: int) -> dict[TopicPartition, Found] | MillstreamError:
        answer = parse_fetch_response(version, frame, start)
        if answer.error:
            return refusal(answer.error, "reading")
        places = ((TopicPartition(str(topic), row.partition), row) for topic, parts in answer.topics for row in parts)
        return {where: _found(where, offsets[where], row) for where, row in places}

    return ApiRequest(FETCH, encode, decode)


def _found(where: TopicPartition, offset: int, row: FetchedPartition) -> Found:
    if row.error == ErrorCode.OFFSET_OUT_OF_RANGE.number:
        return _out_of_range(where, offset, row)
    if row.error:
        return refusal(row.error, f"reading {where} at offset {offset}")
    return FetchedBatches(row.high_watermark, row.log_start_offset, memoryview(cast(Buffer, row.records)))


def _out_of_range(where: TopicPartition, offset: int, row: FetchedPartition) -> Found:
    """Nothing for a place that is not reached yet; OFFSET_OUT_OF_RANGE for one that is gone."""
    if row.high_watermark < 0 or row.log_start_offset < 0:
        return None
    if offset < row.log_start_offset:
        return gone(where, offset, row.log_start_offset)
    return FetchedBatches(row.high_watermark, row.log_start_offset, memoryview(b""))
