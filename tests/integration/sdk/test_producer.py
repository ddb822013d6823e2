"""Tests the public producer, blocking and asyncio, with many threads, against a real broker."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import millstream
from millstream.sdk.fetching import FetchResult
from millstream.sdk.wire_client import WireClient
from millstream.testing.embedded import EmbeddedBroker
from millstream.testing.real_broker import RealBroker

LONG_S = 60.0


async def stored(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all messages of a partition."""
    found: list[tuple[int, bytes | None]] = []
    async with WireClient(bootstrap) as client:
        while True:
            fetched: FetchResult = await client.fetch(topic, partition, len(found), max_wait_ms=0)
            if not fetched.records:
                return found
            found += [(record.offset, record.value) for record in fetched.records]


def test_a_receipt_blocks_until_the_message_is_stored(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client, client.producer(group="shop") as producer:
        when = datetime(2020, 1, 1, tzinfo=UTC)
        receipt = producer.put("sync-orders", key="k", value="v", headers={"a": b"b"}, timestamp=when)
        place = receipt.result(timeout=LONG_S)
        assert (place.topic, place.partition, place.offset) == ("sync-orders", 0, 0)
        assert place.timestamp_ms == when.timestamp() * 1000
        assert receipt.exception() is None
        assert producer.group == "shop"
        assert "0 bytes" in repr(producer)
        places = producer.put_many("sync-orders", [b"%d" % number for number in range(1000)]).result(LONG_S)
        assert list(places.offsets) == list(range(1, 1001))
    assert len(asyncio.run(stored(millstream_bootstrap, "sync-orders"))) == 1001
    with pytest.raises(millstream.MillstreamError, match="CLIENT_CLOSED"):
        producer.put("sync-orders", b"late")


def test_a_receipt_accepts_every_duration_type_and_refuses_others(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client, client.producer(linger=LONG_S) as producer:
        receipts = producer.put("timed-orders", "v"), producer.put_many("timed-orders", ["v"])
        for receipt in receipts:
            for wrong in (-1, float("nan"), "soon", datetime(2020, 1, 1)):  # noqa: DTZ001
                with pytest.raises(millstream.MillstreamError, match=r"INVALID_SETTING: timeout[=:]"):
                    receipt.result(wrong)
        for long in (timedelta(minutes=1), datetime.now(tz=UTC) + timedelta(minutes=1), LONG_S, 1e12, "5m"):
            assert producer.put("timed-orders", "v").result(long).topic == "timed-orders"


async def fail_within(bootstrap: str) -> None:
    async with millstream.connect_async(bootstrap) as client, client.producer() as producer:
        producer.put("sync-orders", "v", partition=99)
        raise ValueError("the caller's own")


def fail_within_blocking(bootstrap: str) -> None:
    with millstream.connect(bootstrap) as client, client.producer() as producer:
        producer.put("sync-orders", "v", partition=99)
        raise ValueError("the caller's own")


@pytest.mark.parametrize("fail", [fail_within_blocking, lambda bootstrap: asyncio.run(fail_within(bootstrap))])
def test_failed_puts_become_a_note_of_the_exception_that_left_the_block(
    fail: Callable[[str], None], millstream_bootstrap: str
) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("sync-orders", exist_ok=True)
    with pytest.raises(ValueError, match="the caller's own") as caught:
        fail(millstream_bootstrap)
    assert "1 message was not confirmed" in caught.value.__notes__[0]


def test_a_message_is_put_and_awaited(millstream_bootstrap: str) -> None:
    async def run() -> None:
        async with (
            millstream.connect_async(millstream_bootstrap) as client,
            client.producer(linger=timedelta(seconds=30)) as producer,
        ):
            receipts = [producer.put("async-orders", b"%d" % number) for number in range(100)]
            assert [(await receipt).offset for receipt in receipts] == list(range(100))
            done: list[millstream.Receipt] = []
            producer.put("async-orders", b"last", on_done=done.append)
            await producer.flush(timeout=LONG_S)
            assert done[0].result().offset == 100
            producer.put("async-orders", b"left to the close")
        assert len(await stored(millstream_bootstrap, "async-orders")) == 102

    asyncio.run(run())


def test_a_blocking_producers_receipt_can_be_awaited_on_any_event_loop(millstream_bootstrap: str) -> None:
    async def run() -> None:
        client = await asyncio.to_thread(millstream.connect, millstream_bootstrap)
        producer = await asyncio.to_thread(client.producer)
        receipts = [producer.put("elsewhere", b"%d" % number) for number in range(10)]
        places = await asyncio.gather(*receipts)
        assert [place.offset for place in places] == list(range(10))
        await asyncio.to_thread(client.close)

    asyncio.run(run())


def test_threads_keep_their_order_in_a_producer_with_a_small_buffer(
    millstream_bootstrap: str,
) -> None:
    threads, each, max_bytes = 6, 3000, 50_000
    most = 0
    with millstream.connect(millstream_bootstrap) as client:
        with client.producer(max_bytes=max_bytes, batch_count=100, linger=0) as producer:
            receipts: dict[int, list[millstream.Receipt]] = {}

            def work(number: int) -> None:
                nonlocal most
                receipts[number] = []
                for at in range(each):
                    receipts[number].append(producer.put("threads", b"%d %d" % (number, at)))
                    most = max(most, producer.held_bytes)

            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        values = dict(asyncio.run(stored(millstream_bootstrap, "threads")))
    assert most <= max_bytes
    assert len(values) == threads * each
    for number, mine in receipts.items():
        assert [values[receipt.result().offset] for receipt in mine] == [b"%d %d" % (number, at) for at in range(each)]
        offsets = [receipt.result().offset for receipt in mine]
        assert offsets == sorted(offsets)


def test_a_put_waits_for_buffer_space_and_fails_after_room_timeout() -> None:
    with (
        EmbeddedBroker() as broker,
        millstream.connect(broker.bootstrap) as client,
        client.producer(max_bytes=3_000, linger=3600, room_timeout=LONG_S) as patient,
        client.producer(max_bytes=3_000, linger=3600, room_timeout=0.05) as producer,
    ):
        receipts = [patient.put("narrow", b"v" * 200) for _ in range(100)]
        assert receipts[-1].result(LONG_S).offset == 99
        broker.pause()
        try:
            waiting = producer.put("narrow", b"v" * 2_000)
            with pytest.raises(TimeoutError, match="still in flight"):
                waiting.result(timeout=0.01)
            with pytest.raises(millstream.MillstreamError, match="PRODUCER_FULL"):
                producer.put("narrow", b"v" * 2_000)
        finally:
            broker.resume()
        producer.room()
        producer.put("narrow", b"v").result(LONG_S)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_messages_are_read_unchanged_with_every_compression(compression: str, millstream_bootstrap: str) -> None:
    topic = f"packed-{compression}"
    values: list[Any] = [b"value %d" % number for number in range(500)]
    with millstream.connect(millstream_bootstrap) as client, client.producer(compression=compression) as producer:
        producer.put_many(topic, values, keys=[b"k"] * 500)
    assert [value for _, value in asyncio.run(stored(millstream_bootstrap, topic))] == values


def test_a_producer_with_acks_0_refuses_message_ids_but_its_receipts_have_one(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("unanswered", partitions=1)
        with client.producer(acks=0) as producer:
            for refused in (
                lambda: producer.put("unanswered", "x", message_id="own"),
                lambda: producer.put_many("unanswered", ["x"], message_ids=["own"]),
            ):
                with pytest.raises(millstream.MillstreamError) as error:
                    refused()
                assert error.value.code is millstream.ErrorCode.INVALID_REQUIRED_ACKS
            assert producer.put("unanswered", "asked").message_id
            producer.put("unanswered", "by hash", hash=7)
        consumer = client.consumer("unanswered", start="beginning", stop=2)
        assert [message.value for message in consumer] == [b"asked", b"by hash"]


def test_receipts_report_the_true_outcome_across_broker_kills(tmp_path: Path) -> None:
    broker = RealBroker(tmp_path / "data")
    broker.start()
    receipts: list[millstream.Receipt] = []
    try:
        with millstream.connect(broker.bootstrap) as client:
            producer = client.producer(batch_count=50, linger=0)
            for round_number in range(3):
                receipts += [producer.put("t", b"%d-%d" % (round_number, at)) for at in range(2000)]
                receipts[-1000].result(LONG_S)
                receipts += [producer.put("t", b"%d+%d" % (round_number, at)) for at in range(500)]
                broker.kill()
                broker.start()
            producer.close(timeout=LONG_S)
        values = dict(asyncio.run(stored(broker.bootstrap, "t")))
        for receipt in receipts:
            assert receipt.exception(LONG_S) is None
        assert len(values) == len(receipts)
        assert [receipt.result().offset for receipt in receipts] == list(range(len(receipts)))
    finally:
        broker.close()


def test_a_put_without_a_value_is_refused_and_none_is_a_tombstone(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("tombstones", partitions=1)
        with client.producer() as producer:
            with pytest.raises(TypeError, match="'value'"):
                producer.put("tombstones", key="alice")  # type: ignore[call-arg]
            with pytest.raises(millstream.InvalidArgumentError, match="needs the key whose messages it deletes"):
                producer.put("tombstones", None)
            producer.put("tombstones", None, key="alice")
        consumer = client.consumer("tombstones", start="beginning", stop="latest")
        assert [(message.key, message.value) for message in consumer] == [(b"alice", None)]


class Order(msgspec.Struct):
    number: int


def test_a_producer_encodes_what_a_consumer_of_the_same_format_decodes(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("encoded", partitions=1)
        with client.producer(values=Order) as producer:
            producer.put("encoded", Order(1), key="alice", timestamp=1)
            producer.put_many("encoded", [Order(2), None, Order(3)], keys=["a", "b", "c"])
            with pytest.raises(millstream.UnencodableError, match="topic 'encoded', key 'bob'"):
                producer.put("encoded", "text", key="bob")  # type: ignore[arg-type]
            producer.put_many("encoded", pa.table({"value": ['{"number":4}']}))
        consumer = client.consumer("encoded", start="beginning", stop="latest", values=Order)
        assert [message.value for message in consumer] == [Order(1), Order(2), None, Order(3), Order(4)]
