"""Checks and stamps several batches of the broker's own, which are appended to a partition in one write."""

from collections.abc import Sequence

from msgspec import Struct

from millstream.model.ids import LeaderEpoch
from millstream.model.limits import NO_TIMESTAMP
from millstream.partition.produce_rules import check_produced, stamp_append_time
from millstream.records.header import BatchHeader, read_header
from millstream.records.produced_batch import placed
from millstream.topics.settings import TopicSettings


class StampedRun(Struct, frozen=True):
    """Batches with consecutive offsets."""

    data: bytes
    headers: Sequence[BatchHeader]
    log_append_time_ms: int


def stamped_run(
    batches: Sequence[memoryview],
    settings: TopicSettings,
    *,
    now_ms: int,
    base_offset: int,
    leader_epoch: LeaderEpoch,
) -> StampedRun:
    """Check all batches as those of a producer, then write offsets and epoch into them in place."""
    checked = [check_produced(records, settings, now_ms) for records in batches]
    headers, next_offset = list[BatchHeader](), base_offset
    for records, header in zip(batches, checked, strict=True):
        assert header.producer_id < 0, "batches of an idempotent producer are appended one by one"
        if settings.log_append_time:
            stamp_append_time(records, header, now_ms)
            header = read_header(records)
        headers.append(placed(records, header, next_offset, leader_epoch))
        next_offset = headers[-1].next_offset
    return StampedRun(b"".join(batches), headers, now_ms if settings.log_append_time else NO_TIMESTAMP)
