"""Tests that large batches are compressed in workers while the event loop continues."""

import asyncio

import pytest

from builders.held_workers import HeldWorkers
from builders.sdk.engines import Put
from builders.sdk.scripted_broker import Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.sdk.producing.batch_compression import HEAVY_BYTES
from millstream.sdk.producing.failures import UnstoredError

BIG = b"x" * HEAVY_BYTES
LONG_S = 5.0
"""Seconds of simulated time."""


def held(scene: Scene) -> HeldWorkers:
    scene.workers = workers = HeldWorkers()
    return workers


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_other_batches_are_stored_while_a_worker_compresses(compression: str) -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        put = Put(scene, compression=compression)
        receipt = put("t", BIG)
        await put("other", b"small")
        await asyncio.sleep(LONG_S)
        assert not receipt.done()
        assert workers.held == workers.begun == 1
        await workers.release()
        assert (await receipt).offset == 0
        assert scene.cluster.topics["t"][0].values == [BIG]
        assert workers.begun == 1

    play(body)


@pytest.mark.parametrize(("compression", "value"), [("none", BIG), ("gzip", b"small")])
def test_small_and_uncompressed_batches_use_no_worker(compression: str, value: bytes) -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        await Put(scene, compression=compression)("t", value)
        assert workers.begun == 0

    play(body)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_batches_keep_their_order_whichever_is_compressed_first(first: int) -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        put = Put(scene, compression="zstd", batch_count=1)
        receipts = [put("t", BIG + b"%d" % number) for number in range(3)]
        await asyncio.sleep(LONG_S)
        assert workers.held == 3
        await workers.release(first)
        assert receipts[0].done() == (first == 0)
        while workers.held:
            await workers.release(workers.held - 1)
        assert [(await receipt).offset for receipt in receipts] == [0, 1, 2]
        assert scene.cluster.topics["t"][0].values == [BIG + b"%d" % number for number in range(3)]

    play(body)


def test_an_id_read_during_compression_is_stored_with_the_message() -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        put = Put(scene, compression="lz4")
        receipt = put("t", BIG)
        await asyncio.sleep(LONG_S)
        known_id = receipt.message_id
        await workers.release()
        assert not receipt.done()
        await workers.release()
        await receipt
        assert receipt.message_id == known_id
        (record,) = scene.cluster.topics["t"][0].records
        assert list(record.headers) == [(ID_HEADER, known_id)]

    play(body)


def test_a_batch_that_is_too_large_is_split_and_compressed_in_a_worker() -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        put = Put(scene, compression="gzip")
        scene.cluster.then("Produce", Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        receipts = put.many("t", [BIG, b"1", b"2", BIG])
        await asyncio.sleep(LONG_S)
        await workers.release()
        await asyncio.sleep(LONG_S)
        assert workers.held == 1
        await workers.release()
        await receipts
        assert [len(batch) < HEAVY_BYTES for batch in scene.cluster.topics["t"][0].batches] == [True, True]
        assert scene.cluster.topics["t"][0].values == [BIG, b"1", b"2", BIG]

    play(body)


def test_a_batch_in_compression_is_reported_unsent_when_the_producer_closes() -> None:
    async def body(scene: Scene) -> None:
        workers = held(scene)
        put = Put(scene, compression="zstd")
        receipt = put("t", BIG)
        with pytest.raises(UnstoredError):
            await put.close(1.0)
        with pytest.raises(MillstreamError, match="nothing was sent"):
            await receipt
        await workers.release()
        assert put.engine.intake.held_bytes == 0

    play(body)


def test_a_batch_that_cannot_be_encoded_fails_and_later_ones_are_stored() -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene, compression="zstd")
        impossible = put.many("t", [BIG, BIG], timestamps_ms=[0, 2**63])
        after = put.many("t", [BIG])
        with pytest.raises(UnstoredError, match="cannot be encoded"):
            await impossible
        await after
        assert scene.cluster.topics["t"][0].values == [BIG]

    play(body)
