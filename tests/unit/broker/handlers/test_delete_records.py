"""Tests DeleteRecords: the log start moves durably, or the error names the reason."""

from pathlib import Path

import pytest

from builders.batches import batch
from builders.loops import for_each
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from millstream.model.errors import ErrorCode
from millstream.storage.store import FlushPolicy
from millstream.wire.schema_readers import Fields

EVERY_VERSION = range(3)


async def delete(peer: RawPeer, version: int, topic: str, offset: int, partition: int = 0) -> Fields:
    asked = {"partition_index": partition, "offset": offset}
    fields = {"topics": [{"name": topic, "partitions": [asked]}], "timeout_ms": 30_000}
    answer = await peer.ask("DeleteRecords", version, fields)
    row: Fields = answer["topics"][0]["partitions"][0]
    return row


@for_each("version", EVERY_VERSION)
def test_records_before_an_offset_are_deleted_and_the_new_start_returned(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        for _ in range(3):
            await produce(peer, "events", batch(b"a", b"b"))
        assert await delete(peer, version, "events", 3) == {"partition_index": 0, "low_watermark": 3, "error_code": 0}
        assert (await delete(peer, version, "events", 1))["low_watermark"] == 3, "it never goes back"
        assert (await delete(peer, version, "events", -1))["low_watermark"] == 6
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        assert (partition.log.start_offset, partition.high_watermark) == (6, 6)
        assert (await produce(peer, "events", batch(b"c"))).base_offset == 6

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "error"),
    [
        ("events", 0, 3, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("events", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("events", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC),
    ],
)
def test_invalid_deletions_are_refused_with_their_error(
    topic: str, partition: int, offset: int, error: ErrorCode, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        await broker.topic("compacted", cleanup_policy="compact")
        peer = await broker.peer()
        await produce(peer, "events", batch(b"a", b"b"))
        row = await delete(peer, 2, topic, offset, partition)
        assert (row["error_code"], row["low_watermark"]) == (error.number, -1)

    serve(tmp_path, story)


@pytest.mark.parametrize("policy", ["compact,delete", ""])
def test_records_are_deleted_from_a_topic_unless_its_policy_is_compact(policy: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy=policy)
        peer = await broker.peer()
        await produce(peer, "events", batch(b"a", b"b", keys=[b"1", b"2"]))
        assert (await delete(peer, 2, "events", 1))["low_watermark"] == 1

    serve(tmp_path, story)
