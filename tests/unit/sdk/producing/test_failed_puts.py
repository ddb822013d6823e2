"""Tests that failed puts leave no reused ids, no held memory and no waiting callers behind."""

import asyncio
from functools import partial
from typing import Any

import pytest

from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Late, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.producing import batches
from millstream.sdk.producing.chunk import ProducerBatch, PutResult, Receipt
from millstream.sdk.producing.engine import ProducerEngine
from millstream.sdk.producing.message_ids import checked_ids
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.wire_client import WireClient
from millstream.seams.clock import SystemClock
from millstream.wire.client_connection import ConnectionCore

COLUMNS = ("keys", "headers", "partition", "hashes", "ids")


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE])
@pytest.mark.parametrize("read_early", [False, True])
def test_the_id_of_an_unstored_message_is_not_reused(code: ErrorCode, read_early: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Late(1.0), Refuse(code))
        ahead = put("t", b"b")
        await asyncio.sleep(0.1)
        refused = put("t", b"c")
        await asyncio.sleep(0.1)
        known_id = refused.message_id if read_early else None
        with pytest.raises(MillstreamError, match=code.name):
            await refused
        await ahead
        after = put("t", b"d")
        await after
        assert after.message_id.startswith(b"~")
        assert after.message_id != refused.message_id
        assert known_id is None or refused.message_id == known_id
        assert refused.message_id == refused.message_id
        assert scene.cluster.topics["t"][0].values == [b"a", b"b", b"d"]

    play(body)


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_that_a_receipt_reports_is_logged_at_info(caplog: pytest.LogCaptureFixture, count: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        with pytest.raises(MillstreamError, match="INVALID_RECORD"):
            await Put(scene).many("t", [b"v"] * count)

    with caplog.at_level("INFO", "millstream.sdk.producer"):
        play(body)
    (record,) = [each for each in caplog.records if each.name == "millstream.sdk.producer"]
    assert record.levelname == "INFO"
    assert record.getMessage().startswith(f'put failed topic=t messages={count} error="INVALID_RECORD')


@pytest.mark.parametrize("is_held", [False, True])
def test_a_message_larger_than_the_buffer_is_refused_at_once(is_held: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, max_bytes=5_000)
        small = [put("t", b"small")] if is_held else []
        with pytest.raises(MillstreamError, match=r"a message of 5\d\d\d bytes.* max_bytes=5000") as refused:
            put("t", b"v" * 5_000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        for receipt in small:
            await receipt
        assert len(await put.many("t", [b"v" * 5_000])) == 1
        assert put.engine.intake.held_bytes == 0

    play(body)


@pytest.mark.parametrize("wrong", ["0", 1.5, True, 2**70, -(2**70)])
@pytest.mark.parametrize("name", ["partition", "hash"])
def test_an_invalid_partition_or_hash_is_refused_at_once(name: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        columns = {"partition": {"partition": [0, wrong]}, "hash": {"hashes": [0, wrong]}}
        if name == "hash" and type(wrong) is int:
            assert (await put("t", b"v", hash=wrong)).partition == 0
            return
        with pytest.raises((TypeError, ValueError), match=name):
            put("t", b"v", **{name: wrong})
        with pytest.raises((TypeError, ValueError), match=name):
            put.many("t", [b"v", b"w"], **columns[name])
        if name == "partition":
            with pytest.raises((TypeError, ValueError), match=name):
                put.many("t", [b"v", b"w"], partition=wrong)
        assert put.engine.intake.held_bytes == 0

    play(body)


@pytest.mark.parametrize(
    "wrong", ["x", "ab", b"ab", 5, 1.5, True, ["ab"], [("a",)], [("a", b"b", b"c")], [5], {5: b"x"}]
)
def test_invalid_headers_are_refused_by_name(wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        with pytest.raises(TypeError, match="header"):
            put("t", b"v", headers=wrong)
        with pytest.raises(TypeError, match="header"):
            put.many("t", [b"v"], headers=[wrong])
        assert put.engine.intake.held_bytes == 0
        assert (await put("t", b"v", headers={})).offset == 0

    play(body)


@pytest.mark.parametrize("name", ["keys", "headers", "hashes"])
@pytest.mark.parametrize("wrong", ["ab", b"ab", 5, 1.5, True])
def test_a_column_that_is_not_a_sequence_is_refused_by_name(name: str, wrong: Any) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        with pytest.raises(TypeError, match=name):
            put.many("t", [b"v", b"w"], **{name: wrong})
        with pytest.raises(TypeError, match="message_ids"):
            checked_ids(wrong, None)
        if isinstance(wrong, bytes):  # A single number applies to all messages, and bytes are a sequence of numbers.
            with pytest.raises(TypeError, match="partitions"):
                put.many("t", [b"v", b"w"], partition=wrong)
        assert put.engine.intake.held_bytes == 0

    play(body)


def test_a_queued_message_fails_within_its_delivery_timeout() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, timeout_s=20.0)
        await put("t", b"a")
        scene.cluster.then("Produce", *[Late(1_000.0)] * 100)
        for number in range(12):
            begun_s, receipt = scene.loop.time(), put("t", b"%d" % number)
            await asyncio.sleep(0.1)
        with pytest.raises(MillstreamError, match="REQUEST_TIMED_OUT"):
            await receipt
        assert scene.loop.time() - begun_s < 21

    play(body)


def test_a_shared_error_does_not_accumulate_tracebacks() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        scene.cluster.then("Produce", Refuse(ErrorCode.INVALID_RECORD))
        receipts = [put("t", b"v") for _ in range(100)]
        frames = []
        for receipt in receipts:
            with pytest.raises(MillstreamError) as error:
                await receipt
            frames.append(len(error.traceback))
        assert len(set(frames[1:])) == 1

    play(body)


def test_a_message_too_large_for_any_request_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ConnectionCore.__init__.__kwdefaults__ or {}, "frame_bytes_max", 10_000)

    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        too_large, after = put("t", bytes(10_000)), put("t", b"b")
        with pytest.raises(MillstreamError, match="MESSAGE_TOO_LARGE"):
            await too_large
        await after
        assert scene.cluster.topics["t"][0].values == [b"a", b"b"]

    play(body)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_bug_in_the_producer_fails_one_batch_and_later_ones_are_stored(
    is_first: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encode = batches._encode_columns

    def fail_for_one(batch: ProducerBatch) -> bytearray:
        assert batch.chunk.values[0] != b"faulty"
        return encode(batch)

    monkeypatch.setattr(batches, "_encode_columns", fail_for_one)

    async def body(scene: Scene) -> None:
        put = Put(scene)
        if not is_first:
            await put("t", b"a")
        faulty = put("t", b"faulty")
        with pytest.raises(MillstreamError, match="CLIENT_FAILED"):
            await faulty
        await put("t", b"b")
        assert scene.cluster.topics["t"][0].values == ([b"b"] if is_first else [b"a", b"b"])
        await put.close(1.0)

    play(body)
    assert "failed unexpectedly" in caplog.text


def test_puts_and_receipts_raise_client_closed_after_the_event_loop_ended() -> None:
    async def put_one() -> tuple[ProducerEngine, Receipt]:
        engine = ProducerEngine(WireClient("localhost:1")._caller, SystemClock(), ProducerSettings(linger_s=60.0))
        return engine, engine.intake.put("t", b"v", *[None] * 7)

    engine, receipt = asyncio.run(put_one())
    put_many = partial(engine.put_many, "t", [b"v"], timestamps_ms=5, **dict.fromkeys(COLUMNS))
    put = partial(engine.intake.put, "u", b"v", *[None] * 7)
    for late in (receipt.result, put, put, put_many, lambda: asyncio.run(awaited(receipt))):
        with pytest.raises(MillstreamError, match="the producer's event loop has ended") as refused:
            late()
        assert refused.value.code is ErrorCode.CLIENT_CLOSED


async def awaited(receipt: Receipt) -> PutResult:
    return await receipt
