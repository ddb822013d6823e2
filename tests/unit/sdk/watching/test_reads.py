"""Tests reads at offsets that the caller tracks: existing messages, waiting, limits and errors."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from builders.sdk.simulated_consumers import LONG_S, TOPIC, Ground, place, play, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records import batch
from millstream.sdk.feed import fetched_chunk
from millstream.sdk.watching.engine import LINGER_S, WatchEngine
from millstream.sdk.watching.read_result import ReadResult


def watching(ground: Ground) -> WatchEngine:
    found = ground.client._context._watch_engine
    assert found is not None
    return found


async def wait_until_waiting(ground: Ground, count: int = 1) -> None:
    """Let the started reads run until `count` of them wait."""
    await asyncio.sleep(1)
    assert sum(watch.waiting for watch in watching(ground)._watches.values()) == count


def offsets(result: ReadResult) -> list[int]:
    return [message.offset for message in result.messages]


@pytest.mark.parametrize(
    ("offset", "first"),
    [(0, 0), (7, 7), ("beginning", 0), ("latest", 20), (20, 20), (timedelta(hours=1), 0), (4e9, 20)],
)
@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_a_read_returns_the_messages_from_its_position_on(offset: Any, first: int, wait: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20)
        result = await ground.client.read(TOPIC, 0, offset, wait=wait)
        assert values(result.messages) == ground.written[0][first:]
        assert offsets(result) == list(range(first, 20))
        assert result._replace(messages=[]) == (TOPIC, 0, [], 20, 0, 20)

    play(story)


@pytest.mark.parametrize("ahead", [0, 1, 15])
def test_a_read_after_the_log_end_waits_for_its_offset(ahead: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(20)
        reading = asyncio.ensure_future(ground.client.read(TOPIC, 0, 20 + ahead, wait=60))
        for _ in range(ahead):
            await wait_until_waiting(ground)
            await ground.write(1)
        await wait_until_waiting(ground)
        assert not reading.done()
        await ground.write(1)
        before_s = asyncio.get_running_loop().time()
        result = await reading
        assert asyncio.get_running_loop().time() - before_s < 0.1
        assert (values(result.messages), result.next_offset) == (ground.written[0][-1:], 21 + ahead)

    play(story)


@pytest.mark.parametrize("offset", [10, 12])
@pytest.mark.parametrize("wait", [0.0, 7.0])
def test_a_wait_without_messages_returns_an_empty_result(offset: int, wait: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        before_s = asyncio.get_running_loop().time()
        assert await ground.client.read(TOPIC, 0, offset, wait=wait) == (TOPIC, 0, [], offset, 0, 10)
        assert wait <= asyncio.get_running_loop().time() - before_s < wait + 0.5

    play(story)


def test_a_read_respects_its_limits_and_returns_the_next_offset() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(100)
        found: list[bytes] = []
        offset = 0
        while len(found) < 100:
            result = await ground.client.read(TOPIC, 0, offset, max_messages=7)
            assert len(result.messages) == min(7, 100 - len(found))
            found += values(result.messages)
            offset = result.next_offset
        assert found == ground.written[0]
        by_bytes = await ground.client.read(TOPIC, 0, 10, max_bytes=8)
        assert offsets(by_bytes) == [10, 11, 12, 13]
        assert offsets(await ground.client.read(TOPIC, 0, 10, max_bytes=1)) == [10]

    play(story)


def test_recent_messages_are_read_from_memory_within_the_limits() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 5, wait=60))
        await wait_until_waiting(ground)
        for _ in range(10):
            await ground.write(10)
        assert values((await waiting).messages)[0] == ground.written[0][5]
        await asyncio.sleep(0.5)
        ground.network.block("reader")  # From here on only the cache can answer.
        found: list[bytes] = []
        offset = 5
        while len(found) < 100:
            result = await ground.client.read(TOPIC, 0, offset, max_messages=13)
            assert len(result.messages) == min(13, 100 - len(found))
            found += values(result.messages)
            offset = result.next_offset
        assert found == ground.written[0][5:]
        ground.network.unblock("reader")

    play(story)


@pytest.mark.parametrize("wait", [0.0, 5.0])
def test_compressed_messages_are_decompressed_by_workers(wait: float, monkeypatch: pytest.MonkeyPatch) -> None:
    unpackings = 0
    unpacked = batch.unpacked

    def counted(stored: memoryview, **limits: int) -> bytearray:
        nonlocal unpackings
        unpackings += 1
        return unpacked(stored, **limits)

    monkeypatch.setattr(fetched_chunk, "unpacked", counted)
    values_written = [b"%06d" % number * 100 for number in range(1_500)]

    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, max_messages=2_000, wait=600))
        await wait_until_waiting(ground)
        async with ground.client.producer(compression="zstd") as producer:
            await producer.put_many(TOPIC, values_written, partition=0)
        assert values((await waiting).messages) == values_written
        found = await ground.client.read(TOPIC, 0, 0, max_messages=2_000, wait=wait)
        assert values(found.messages) == values_written

    play(story)
    assert unpackings == 2


def test_a_read_without_wait_sees_every_acknowledged_message() -> None:
    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 1_000, wait=600))
        await wait_until_waiting(ground)
        for number in range(50):
            await ground.write(1)
            assert values((await ground.client.read(TOPIC, 0, number)).messages) == ground.written[0][number:]
        waiting.cancel()

    play(story)


@pytest.mark.parametrize("wait", [0.0, 30.0])
def test_offsets_of_removed_messages_are_skipped(wait: float) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}

    async def story(ground: Ground) -> None:
        await ground.client.create_topic("kept", partitions=1, settings=settings)
        for _ in range(40):  # Compaction removes every message of each segment (1 MiB) except the last one.
            await ground.writer.put("kept", [bytes(100_000)], keys=[b"key"], partition=0)
        await asyncio.sleep(3_600)
        whole = await ground.client.read("kept", 0, 0, max_messages=40)
        first = whole.messages[0].offset
        assert first > 10
        assert offsets(await ground.client.read("kept", 0, 1, max_bytes=1, wait=wait)) == [first]
        nothing = await ground.client.read("kept", 0, 40, wait=wait)
        assert (nothing.messages, nothing.next_offset) == ([], 40)

    play(story)


@pytest.mark.parametrize("wait", [0.0, 5.0])
def test_an_offset_before_the_log_start_is_out_of_range(wait: float) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(10)
        await ground.client.admin.delete_records({place(): 4})
        with pytest.raises(MillstreamError, match=r"the log now starts at offset 4") as refused:
            await ground.client.read(TOPIC, 0, 3, wait=wait)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await ground.client.read(TOPIC, 0, 4, wait=wait)).log_start_offset == 4

    play(story)


@pytest.mark.parametrize(("topic", "partition"), [("nothing", 0), (TOPIC, 7)])
@pytest.mark.parametrize("wait", [0.0, 5.0])
def test_a_read_of_a_missing_topic_or_partition_is_refused(topic: str, partition: int, wait: float) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError) as refused:
            await ground.client.read(topic, partition, 0, wait=wait)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": -1},
        {"offset": "finish"},
        {"offset": None},
        {"offset": {0: 1}},
        {"offset": [1]},
        {"partition": -1},
        {"max_messages": 0},
        {"max_bytes": 0},
        {"wait": -1},
    ],
)
def test_invalid_read_arguments_are_refused_by_name(wrong: dict[str, Any]) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(MillstreamError, match=next(iter(wrong))) as refused:
            await ground.client.read(TOPIC, **({"partition": 0, "offset": 0} | wrong))
        assert refused.value.code is ErrorCode.INVALID_SETTING

    play(story)


def test_a_waiting_read_fails_at_once_when_its_topic_is_deleted() -> None:
    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=600))
        await wait_until_waiting(ground)
        await ground.client.delete_topic(TOPIC)
        with pytest.raises(MillstreamError) as refused:
            await asyncio.wait_for(waiting, LONG_S)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_a_recreated_topic_is_read_from_its_own_offsets() -> None:
    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=600))
        await wait_until_waiting(ground)
        await ground.write(3)
        assert values((await waiting).messages) == ground.written[0]
        await ground.client.delete_topic(TOPIC)
        await ground.client.create_topic(TOPIC)
        await ground.writer.put(TOPIC, [b"new"], partition=0)
        assert values((await ground.client.read(TOPIC, 0, 0)).messages) == [b"new"]

    play(story)


def test_the_first_partition_with_a_message_ends_the_wait() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(2, (0, 1, 2))
        at = {place(number): 2 for number in range(3)}
        waiting = asyncio.ensure_future(ground.client.read_any(at, wait=600))
        await wait_until_waiting(ground, 3)
        await ground.write(1, (1,))
        found = await waiting
        assert [(where.partition, result.next_offset) for where, result in found.items()] == [(0, 2), (1, 3), (2, 2)]
        assert values(found[place(1)].messages) == ground.written[1][2:]
        await wait_until_waiting(ground, 0)

    play(story, partitions=3)


@pytest.mark.parametrize(("limits", "most"), [({"max_messages": 10}, 10), ({"max_bytes": 30}, 30)])
def test_partitions_of_one_read_share_its_limits_without_starvation(limits: Any, most: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(50, (0, 1, 2))
        at = {place(number): 0 for number in range(3)}
        found: dict[int, list[bytes]] = {number: [] for number in range(3)}
        while found != ground.written:
            results = await ground.client.read_any(at, **limits)
            assert 0 < sum(len(result.messages) for result in results.values()) <= most
            for where, result in results.items():
                found[where.partition] += values(result.messages)
                at[where] = result.next_offset
            assert max(map(len, found.values())) - min(map(len, found.values())) < 50

    play(story, partitions=3)


def test_an_unused_watch_is_ended_after_its_linger_time() -> None:
    async def story(ground: Ground) -> None:
        await ground.client.read(TOPIC, 0, 0, wait=1.0)
        engine = watching(ground)
        (link,) = engine._links.values()
        assert len(engine._watches) == 1
        await asyncio.sleep(LINGER_S + 2)
        assert not engine._watches
        assert engine._ticking is None
        connection = link._connection
        assert connection is not None
        assert connection.closed
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=600))
        await wait_until_waiting(ground)
        await ground.write(1)
        assert values((await waiting).messages) == ground.written[0]

    play(story)


def test_closing_the_client_ends_every_waiting_read() -> None:
    async def story(ground: Ground) -> None:
        waiting = [asyncio.ensure_future(ground.client.read(TOPIC, 0, 0, wait=600)) for _ in range(3)]
        await wait_until_waiting(ground, 3)
        await ground.client.close()
        ended: Sequence[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        assert [error.code for error in ended] == [ErrorCode.CLIENT_CLOSED] * 3
        await asyncio.sleep(5)
        assert watching(ground)._finding is None

    play(story)
