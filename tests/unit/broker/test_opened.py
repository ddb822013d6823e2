"""Tests batches that are decoded before they are stored: keys, compression, timestamps and order."""

from pathlib import Path

import pytest

from builders.batches import SOME_TIME_MS, batch
from builders.loops import for_each
from builders.partitions import read_all
from builders.requests import request_frame
from builders.served import ServedBroker, produce, serve, until
from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse
from millstream.broker.handlers.produce import ProduceHandler
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset
from millstream.partition.appender import Appender
from millstream.partition.opened_batches import BatchOpener
from millstream.partition.pending_appends import AppendDeadlines
from millstream.records.batch import encode_batch, seal
from millstream.records.compression import Compression
from millstream.records.header import HEADER_BYTES, BatchHeader, read_header
from millstream.records.record import Record
from millstream.storage.store import FlushPolicy
from millstream.wire.produce import parse_produce_response, write_produce_request

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


async def stored(broker: ServedBroker) -> tuple[list[BatchHeader], list[Record]]:
    """Return the headers and the records of the topic's only partition."""
    partition = broker.partitions.get("events", 0)
    assert partition is not None
    return list(partition.log.scan.headers_from(Offset(0))), await read_all(partition)


@for_each("version", [3, 7, 8, 9, 13])
def test_a_compacted_topic_refuses_and_names_records_without_a_key(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(cleanup_policy="compact")
        peer, ref = await broker.peer(), topic.topic_id if version >= 13 else "events"
        bad = batch(b"0", b"1", b"2", b"3", keys=[b"k", None, b"", None], compression="zstd")
        result = await produce(peer, ref, bad, version=version)
        assert result.error == ErrorCode.INVALID_RECORD.number
        if version >= 8:
            assert [number for number, _ in result.record_errors] == [1, 3]
            assert result.message is not None
            assert "key" in result.message
        result = await produce(peer, ref, batch(b"0", b"1", keys=[b"", b"k"]), version=version)
        assert (result.error, result.base_offset) == (0, 0)
        _, records = await stored(broker)
        assert [record.key for record in records] == [b"", b"k"]

    serve(tmp_path, story)


@pytest.mark.parametrize("sent", COMPRESSIONS)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_batches_are_stored_with_the_compression_of_the_topic(sent: str, wanted: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(compression_type=wanted)
        peer = await broker.peer()
        original = batch(b"a" * 500, None, keys=[None, b"k"], compression=sent, producer_id=5, producer_epoch=0,
                         base_sequence=0)  # fmt: skip
        assert (await produce(peer, "events", original)).base_offset == 0
        assert (await produce(peer, "events", original)).base_offset == 0, "a retry is known as one"
        (header,), records = await stored(broker)
        expected = {"uncompressed": "none", "producer": sent}.get(wanted, wanted)
        assert Compression(header.compression) is Compression.named(expected)
        assert (header.producer_id, header.base_sequence, header.record_count) == (5, 0, 2)
        assert records == [Record(0, SOME_TIME_MS, None, b"a" * 500), Record(1, SOME_TIME_MS, b"k", None)]

    serve(tmp_path, story)


def test_batches_are_recompressed_with_the_compression_level_of_the_topic(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("fast", compression_type="zstd", compression_zstd_level="1")
        await broker.topic("small", compression_type="zstd", compression_zstd_level="19")
        peer = await broker.peer()
        values = [b"%d times %d" % (number, number * number) for number in range(2000)]
        for name in ("fast", "small"):
            assert (await produce(peer, name, batch(*values))).error == 0
        fast, small = (broker.partitions.of(name)[0].log.size_bytes for name in ("fast", "small"))
        assert small < fast

    serve(tmp_path, story)


@pytest.mark.parametrize("acks", [-1, 1])
def test_pipelined_batches_of_an_idempotent_producer_stay_in_order(acks: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact", compression_type="gzip")
        await broker.topic("others")
        peer = await broker.peer()
        frames = []
        for number in range(40):
            size = 20_000 if number % 3 == 0 else 1
            data = batch(b"." * size, keys=[b"k"], producer_id=9, producer_epoch=0, base_sequence=number)
            topics = [("events", [(0, data)]), ("others", [(0, batch(b"%d" % number))])]
            body = write_produce_request(9, topics, acks=acks, timeout_ms=0 if number == 7 else 30_000)
            frames.append(request_frame("Produce", 9, correlation_id=number, body=body))
        peer.send(*frames)
        for number in range(40):
            (_, (result,)), (_, (other,)) = parse_produce_response(9, (await peer.frame())[5:], 0)
            if number != 7:
                assert (result.error, result.base_offset, other.error, other.base_offset) == (0, number, 0, number)
        headers, _ = await stored(broker)
        assert [header.base_sequence for header in headers] == list(range(40))

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_batches_stay_in_order_when_compression_is_switched_off_between_them(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(compression_type="zstd")
        await broker.topic("plain")
        (partition,), (plain,) = broker.partitions.of("events"), broker.partitions.of("plain")
        opener = BatchOpener()
        first = opener.append(partition, memoryview(batch(b"first")), -1)
        partition.settings = plain.settings
        assert opener.is_needed(partition, 100)
        second = opener.append(partition, memoryview(batch(b"second")), -1)
        assert [(await second).base_offset, (await first).base_offset] == [1, 0]
        assert not opener.is_needed(partition, 100)

    serve(tmp_path, story)


def test_the_timestamp_of_each_record_is_checked(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact", message_timestamp_before_max_ms="60000")
        now_ms = broker.clock.wall_ms()
        times = [now_ms, now_ms - 3_600_000, now_ms]
        old = encode_batch([b"a", b"b", b"c"], keys=[b"1", b"2", b"3"], timestamps=times)
        result = await produce(await broker.peer(), "events", old)
        assert result.error == ErrorCode.INVALID_TIMESTAMP.number

    serve(tmp_path, story)


@pytest.mark.parametrize("body", [b"nonsense", b""])
def test_a_batch_that_cannot_be_decoded_is_refused(body: bytes, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact")
        header = read_header(batch(b"one", keys=[b"k"]))
        result = await produce(await broker.peer(), "events", seal(bytearray(HEADER_BYTES) + body, header))
        assert result.error in (ErrorCode.INVALID_RECORD.number, ErrorCode.CORRUPT_MESSAGE.number)

    serve(tmp_path, story)


def test_a_refused_write_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact")
        peer = await broker.peer()
        for key in (b"k", None):
            body = write_produce_request(9, [("events", [(0, batch(b"v", keys=[key]))])], acks=0, timeout_ms=1000)
            peer.send(request_frame("Produce", 9, body=body))
        await peer.lost()
        _, records = await stored(broker)
        assert [record.key for record in records] == [b"k"]

    serve(tmp_path, story)


def test_writes_with_acks_0_are_over_once_their_batches_are_acknowledged(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(cleanup_policy="compact")
        handler = ProduceHandler(broker.partitions, Appender(), AppendDeadlines())
        body = write_produce_request(9, [("events", [(0, batch(b"v", keys=[b"k"]))])], acks=0, timeout_ms=1000)
        answers = [
            handler(BrokerRequest(9, correlation_id=1, frame=memoryview(bytearray().join(body)), body=0))
            for _ in range(3)
        ]
        later = [answer for answer in answers if isinstance(answer, DeferredResponse) and answer.change is not None]
        assert len(later) == 3
        await until(lambda: all(each.is_done for each in later))
        assert [each.answer for each in later] == [None] * 3
        assert len((await stored(broker))[1]) == 3

    serve(tmp_path, story)
