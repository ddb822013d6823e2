"""Tests that a broker refuses batches whose records cannot be decoded, and stores what the others can read."""

import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from builders.batches import SOME_TIME_MS, batch, numbered_batch
from builders.loops import for_each
from builders.partitions import Site, read_all
from builders.served import ServedBroker, produce, puts, serve
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset, ProducerId
from millstream.records.batch import encode_batch, seal
from millstream.records.header import CRC_START, HEADER_BYTES, BatchHeader, check, read_header
from millstream.records.record_walk import LOCKED_BYTES_MAX

INVALID_RECORD = ErrorCode.INVALID_RECORD.number
INVALID_TIMESTAMP = ErrorCode.INVALID_TIMESTAMP.number


def garbage(count: int = 3, *, size_bytes: int = 200, **fields: Any) -> bytearray:
    """Build a batch with a right checksum whose records are random bytes."""
    no_epoch, nobody = LeaderEpoch(-1), ProducerId(-1)
    header = BatchHeader(Offset(0), 0, no_epoch, 2, 0, 0, count - 1, SOME_TIME_MS, SOME_TIME_MS, nobody, -1, -1, count)
    return seal(bytearray(HEADER_BYTES) + Random(1).randbytes(size_bytes), header._replace(**fields))


def resealed(records: bytearray, layout: str, position: int, value: int) -> bytearray:
    """Change a field of the header, and correct the checksum."""
    struct.pack_into(layout, records, position, value)
    records[17:21] = crc32c(bytes(records[CRC_START:])).to_bytes(4)
    return records


@for_each("send", [produce, puts])
def test_garbage_with_a_right_checksum_is_refused_and_readers_continue(send: object, tmp_path: Path) -> None:
    assert callable(send)

    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer = await broker.peer()
        assert (await send(peer, "events", batch(b"before"), partition=1)).error == 0
        result = await send(peer, "events", garbage(), partition=1)
        assert result.error == INVALID_RECORD
        assert result.message is not None
        assert result.message.startswith("partition events-1 refused the batch: record 0 of 3 is invalid: ")
        identified = garbage(producer_id=7, producer_epoch=0, base_sequence=0)
        assert (await send(peer, "events", identified, partition=1)).error == INVALID_RECORD
        first = batch(b"after", producer_id=7, producer_epoch=0, base_sequence=0)
        result = await send(peer, "events", first, partition=1)
        assert (result.error, result.base_offset) == (0, 1), "a refused batch takes no sequence number"
        assert [record.value for record in await read_all(broker.partitions.of("events")[1])] == [b"before", b"after"]

    serve(tmp_path, story)


@for_each("settings", [{"cleanup.policy": "compact"}, {"compression.type": "zstd"}, {}])
@for_each("compression", ["none", "lz4"])
def test_topics_that_open_batches_refuse_garbage_inside_of_compressed_ones(
    compression: str, settings: dict[str, str | None], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.partitions.create("events", settings=settings)
        damaged = bytearray(encode_batch([b"v"] * 2, keys=[b"k"] * 2, timestamps=SOME_TIME_MS))
        damaged[-1] = 2  # The last record claims to have a header.
        header = read_header(damaged)
        records = seal(damaged, header._replace(attributes=3 if compression == "lz4" else 0))
        result = await produce(await broker.peer(), "events", records)
        if compression == "lz4" and not settings:
            assert result.error == 0, "a compressed batch is opened by its readers only"
        else:
            assert (result.error, [index for index, _ in result.record_errors]) == (INVALID_RECORD, [1])
            assert result.message is not None
            assert result.message.startswith("partition events-0 refused the batch: record 1 of 2 is invalid: ")

    serve(tmp_path, story)


def test_a_batch_too_large_for_the_event_loop_is_walked_in_a_worker(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(max_message_bytes=str(2 * LOCKED_BYTES_MAX))
        peer = await broker.peer()
        large = numbered_batch(40, size_bytes=LOCKED_BYTES_MAX // 30)
        for send in (produce, puts):
            result = await send(peer, "events", garbage(size_bytes=LOCKED_BYTES_MAX + 1))
            assert result.error == INVALID_RECORD
            assert result.message is not None
            assert "events-0" in result.message
            assert (await send(peer, "events", large)).error == 0
        assert len(await read_all(broker.partitions.of("events")[0])) == 80

    serve(tmp_path, story)


def test_records_are_not_walked_when_validation_is_off() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start(validate_records=False)
        await partitions.create("events")
        partition = partitions.of("events")[0]
        partition.append(memoryview(garbage()))
        assert partition.log.end_offset == 3
        partitions = await site.restart()
        with pytest.raises(MillstreamError, match="events-0"):
            partitions.of("events")[0].append(memoryview(garbage()))

    Site().run(story)


@for_each("bit", [7, 8, 9, 10, 11, 12, 15])
def test_undefined_attribute_bits_are_refused(bit: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        await broker.topic("appended", message_timestamp_type="LogAppendTime")
        peer = await broker.peer()
        for send, topic in ((produce, "events"), (puts, "events"), (produce, "appended")):
            result = await send(peer, topic, resealed(batch(), ">H", 21, 1 << bit))
            assert result.error == INVALID_RECORD
            assert result.message is not None
            assert f"undefined attribute bits ({1 << bit:#06x})" in result.message

    serve(tmp_path, story)


@for_each("times", [(-2, -2), (SOME_TIME_MS, -5), (-(2**62), SOME_TIME_MS)])
def test_negative_timestamps_are_refused(times: tuple[int, int], tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        await broker.topic("appended", message_timestamp_type="LogAppendTime")
        peer, records = await broker.peer(), encode_batch([b"a", b"b"], timestamps=times)
        result = await produce(peer, "events", records)
        assert result.error == INVALID_TIMESTAMP
        assert result.message is not None
        assert f"{min(times)} is negative" in result.message
        assert (await produce(peer, "appended", records)).error == 0

    serve(tmp_path, story)


@for_each("times", [(0, -7_200_000, 0), (0, 7_200_000, 0), (0, 0, -7_200_000)])
def test_the_limits_on_timestamps_apply_to_every_record(times: tuple[int, ...], tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(message_timestamp_before_max_ms="3600000", message_timestamp_after_max_ms="3600000")
        now_ms = broker.clock.wall_ms()
        records = encode_batch([b"a", b"b", b"c"], timestamps=[now_ms + each for each in times])
        hidden = resealed(records, ">q", 35, now_ms)  # The header claims that the newest timestamp is now.
        assert (await produce(await broker.peer(), "events", hidden)).error == INVALID_TIMESTAMP

    serve(tmp_path, story)


@for_each("settings", [{}, {"cleanup.policy": "compact"}])
@for_each("claimed", [-1, SOME_TIME_MS - 9])
def test_a_wrong_newest_timestamp_in_the_header_is_corrected(
    claimed: int, settings: dict[str, str | None], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.partitions.create("events", settings=settings)
        records = encode_batch([b"a", b"b"], keys=[b"1", b"2"], timestamps=[SOME_TIME_MS - 5, SOME_TIME_MS - 3])
        assert (await produce(await broker.peer(), "events", resealed(records, ">q", 35, claimed))).error == 0
        partition = broker.partitions.of("events")[0]
        (header,) = partition.log.scan.headers_from(Offset(0))
        assert header.max_timestamp == SOME_TIME_MS - 3
        stored = await read_all(partition)
        assert [record.timestamp for record in stored] == [SOME_TIME_MS - 5, SOME_TIME_MS - 3]

    serve(tmp_path, story)


def test_the_batch_builder_of_this_module_makes_valid_headers() -> None:
    records = garbage()
    check(records, 0, read_header(records))
