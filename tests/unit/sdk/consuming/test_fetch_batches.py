"""Tests fetching of stored batches without decoding them."""

import pytest

from builders.sdk.scripted_broker import Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.header import each_batch


def test_fetch_batches_returns_batches_as_stored() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a", b"b"], partition=0)
        await client.put("t", [b"c"], partition=0)
        answer = await client.fetch_batches("t", 0, 1)
        assert [(header.base_offset, header.record_count) for _, header in each_batch(answer.batches)] == [
            (0, 2),
            (2, 1),
        ]
        assert answer.high_watermark == 3

    play(body)


def test_fetch_batches_returns_damaged_batches() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"], partition=0)
        log = scene.cluster.topics["t"][0]
        log.batches[0] = log.batches[0][:-1] + b"\xff"
        assert bytes((await client.fetch_batches("t", 0, 0)).batches) == log.batches[0]
        with pytest.raises(MillstreamError) as caught:
            await client.fetch("t", 0, 0, timeout_s=1.0)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    play(body)


def test_fetch_batches_returns_nothing_after_the_log_end() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        await client.put("t", [b"a"], partition=0)
        answer = await client.fetch_batches("t", 0, 5, max_wait_ms=100)
        assert (bytes(answer.batches), answer.high_watermark) == (b"", 1)

    play(body)
