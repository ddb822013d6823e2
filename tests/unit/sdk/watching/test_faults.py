"""Tests that successive reads return exactly the log under lost connections, restarts and damaged deliveries."""

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from builders.loops import for_each
from builders.sdk.simulated_consumers import LONG_S, TOPIC, Ground, elect_after_lookup, place, play, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.header import CorruptBatch
from millstream.sdk.feed import fetched_chunk, undecodable_batches
from millstream.sdk.subscribing import requests as subscribing
from millstream.sdk.watching.backlog_fetch import BacklogFetch, ReadResults
from millstream.sdk.watching.engine import CHECK_TICKS, TICK_S, WatchEngine
from millstream.sdk.watching.read_result import ReadResult
from millstream.sdk.watching.recent_cache import PARTITION_BYTES
from millstream.sdk.watching.watch_connection import WINDOW

PARTITIONS = 3
MESSAGES = 150


def watching(ground: Ground) -> WatchEngine:
    found = ground.client._context._watch_engine
    assert found is not None
    return found


async def wait_until_waiting(ground: Ground, count: int = 1) -> None:
    await asyncio.sleep(1)
    assert sum(watch.waiting for watch in watching(ground)._watches.values()) == count


class Poller:
    """Reads some partitions from random offsets on, and tracks its positions like a caller of `client.read`."""

    def __init__(self, ground: Ground, random: Random) -> None:
        self._ground = ground
        self._random = random
        chosen = random.sample(range(PARTITIONS), random.randint(1, PARTITIONS))
        self._begin = {number: random.choice((0, 0, random.randrange(MESSAGES))) for number in chosen}
        self._at = {place(number): offset for number, offset in self._begin.items()}
        self._found: dict[int, list[bytes]] = {number: [] for number in chosen}

    async def run(self) -> None:
        random = self._random
        while any(offset < MESSAGES for offset in self._at.values()):
            try:
                found = await self._ground.client.read_any(
                    self._at,
                    max_messages=random.choice((1, 3, 500)),
                    wait=random.choice((0.0, 0.2, 5.0, 60.0)),
                    timeout=5.0,
                )
            except MillstreamError as error:
                if not error.code.retriable:
                    raise
                continue
            for where, result in found.items():
                assert [message.offset for message in result.messages] == list(
                    range(self._at[where], result.next_offset)
                ), "a result has no gap and no duplicate"
                self._found[where.partition] += values(result.messages)
                self._at[where] = result.next_offset
            if random.random() < 0.2:
                await asyncio.sleep(random.random() * 15)

    def check(self) -> None:
        for number, begin in self._begin.items():
            assert self._found[number] == self._ground.written[number][begin:]


async def trouble(ground: Ground, random: Random, enough: asyncio.Event) -> None:
    while not enough.is_set():
        await asyncio.sleep(random.random() * 5)
        kind = random.randrange(4)
        if kind == 0:
            await ground.restart(pause_s=random.random() * 3)
        elif kind == 1:
            ground.network.block("reader")
            await asyncio.sleep(random.random() * 20)
            ground.network.unblock("reader")
        else:
            ground.network.cut("reader")


@for_each("seed", range(8))
def test_readers_at_any_offset_see_exactly_the_log_under_faults(seed: int) -> None:
    random = Random(seed)

    async def story(ground: Ground) -> None:
        pollers = [Poller(ground, Random(random.random())) for _ in range(30)]
        reading = [asyncio.ensure_future(poller.run()) for poller in pollers]
        enough = asyncio.Event()
        troubling = asyncio.ensure_future(trouble(ground, random, enough))
        left = dict.fromkeys(range(PARTITIONS), MESSAGES)
        while left:
            number = random.choice(list(left))
            count = min(left[number], random.randint(1, 5))
            await ground.write(count, (number,))
            left[number] -= count
            if not left[number]:
                del left[number]
            await asyncio.sleep(random.random())
        await asyncio.wait_for(asyncio.gather(*reading), 20 * LONG_S)
        enough.set()
        await troubling
        for poller in pollers:
            poller.check()

    play(story, partitions=PARTITIONS)


async def timed_s(waiting: "asyncio.Future[list[list[bytes]]]") -> float:
    before_s = asyncio.get_running_loop().time()
    await waiting
    return asyncio.get_running_loop().time() - before_s


async def polls(ground: Ground, offsets: list[int], wait_s: float = 3_600) -> list[list[bytes]]:
    results = await asyncio.gather(*(ground.client.read(TOPIC, 0, offset, wait=wait_s) for offset in offsets))
    return [values(result.messages) for result in results]


def test_waiting_reads_survive_a_restart_and_wake_at_the_next_message() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5, 5, 6, 7]))
        await wait_until_waiting(ground, 4)
        await ground.restart(pause_s=20)
        await asyncio.sleep(20)
        await wait_until_waiting(ground, 4)
        await ground.write(3)
        assert await timed_s(waiting) < 0.1
        assert waiting.result() == [ground.written[0][5:]] * 2 + [ground.written[0][6:], ground.written[0][7:]]

    play(story)


def test_a_waiting_read_continues_under_a_new_leader_epoch(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "millstream.sdk.watching")

    async def story(ground: Ground) -> None:
        await ground.write(5)
        elect_after_lookup(ground, monkeypatch)
        waiting = asyncio.ensure_future(polls(ground, [5, 7]))
        await wait_until_waiting(ground, 2)
        await ground.elect_again()
        await ground.write(5)
        assert await waiting == [ground.written[0][5:], ground.written[0][7:]]

    play(story)
    assert "FENCED_LEADER_EPOCH" in caplog.text


@pytest.mark.parametrize("offset", [5, 7])
def test_messages_written_during_a_disconnect_wake_waiting_reads(offset: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [offset] * 100))
        await wait_until_waiting(ground, 100)
        ground.network.block("reader")
        ground.network.cut("reader")
        await asyncio.sleep(5)
        await ground.write(10)
        ground.network.unblock("reader")
        assert await timed_s(waiting) < 30
        assert waiting.result() == [ground.written[0][offset:]] * 100

    play(story)


def test_a_dead_idle_connection_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk.watching")

    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(polls(ground, [0]))
        await wait_until_waiting(ground)
        ground.network.block("reader")
        await asyncio.sleep(CHECK_TICKS * TICK_S + 15)
        assert any(text.startswith("watches lost") for text in caplog.messages)
        ground.network.unblock("reader")
        await ground.write(1)
        assert await timed_s(waiting) < 30

    play(story)


def test_a_read_fails_with_network_exception_when_the_broker_is_down() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5], wait_s=5.0))
        await wait_until_waiting(ground)
        await ground.node.stop()
        with pytest.raises(MillstreamError) as lost:
            await asyncio.wait_for(waiting, LONG_S)
        assert lost.value.code is ErrorCode.NETWORK_EXCEPTION
        ground.node = await ground.machine.start()
        assert (await polls(ground, [0])) == [ground.written[0]]

    play(story)


def test_an_unread_watch_receives_at_most_one_window() -> None:
    async def story(ground: Ground) -> None:
        await ground.client.read(TOPIC, 0, 0, wait=1.0)
        large = [b"%06d" % number + bytes(100_000) for number in range(100)]
        for value in large:
            await ground.writer.put(TOPIC, [value], partition=0)
        engine = watching(ground)
        (watch,) = engine._watches.values()
        assert 0 < watch.position * 100_000 <= WINDOW.size_bytes
        found: list[bytes] = []
        while len(found) < 100:
            result = await ground.client.read(TOPIC, 0, len(found), wait=60)
            assert result.messages
            found += values(result.messages)
            assert engine._cache.size_bytes <= PARTITION_BYTES
        assert found == large

    play(story)


def test_a_read_at_a_later_offset_skips_the_messages_before_it() -> None:
    """Model a reader that only waits at the log end and skips the messages before it."""

    async def story(ground: Ground) -> None:
        await ground.client.read(TOPIC, 0, 0, wait=1.0)
        for _ in range(100):
            await ground.writer.put(TOPIC, [bytes(100_000)], partition=0)
        engine = watching(ground)
        (old,) = engine._watches.values()
        assert old.position < 100
        assert not (await ground.client.read(TOPIC, 0, 100, wait=1.0)).messages
        (watch,) = engine._watches.values()
        assert (watch.position, old.is_live) == (100, False)
        waiting = asyncio.ensure_future(ground.client.read(TOPIC, 0, 100, wait=60.0))
        await wait_until_waiting(ground)
        await ground.writer.put(TOPIC, [b"news"], partition=0)
        assert values((await waiting).messages) == [b"news"]
        assert engine._watches[place(0)] is watch

    play(story)


def test_a_damaged_delivery_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = 0

    def decode(*arguments: Any, **more: Any) -> object:
        nonlocal damaged
        damaged += 1
        raise CorruptBatch("a bit has turned")

    def decode_twice(*arguments: Any, **more: Any) -> object:
        return decode() if damaged == 0 else decode_messages(*arguments, **more)

    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(polls(ground, [0]))
        await wait_until_waiting(ground)
        with monkeypatch.context() as patched:
            patched.setattr(fetched_chunk, "decode_messages", decode_twice)
            await ground.write(3)
            assert await waiting == [ground.written[0]]
        assert damaged == 1
        with monkeypatch.context() as patched:
            patched.setattr(fetched_chunk, "decode_messages", decode)
            patched.setattr(undecodable_batches, "has_right_checksum", lambda *_: False)
            with pytest.raises(MillstreamError, match="a bit has turned") as refused:
                await ground.client.read(TOPIC, 0, 0)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE

    play(story)


def test_a_waiting_read_repeats_empty_backlog_fetches_with_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = 0

    async def blind(self: BacklogFetch, offsets: Mapping[TopicPartition, int], *_: object) -> ReadResults:
        nonlocal fetches
        fetches += 1
        return {where: ReadResult(*where, [], offset, 0, offset) for where, offset in offsets.items()}

    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5]))
        await wait_until_waiting(ground)
        with monkeypatch.context() as patched:
            patched.setattr(BacklogFetch, "share", blind)
            late = asyncio.ensure_future(polls(ground, [3]))
            await asyncio.sleep(60)
        assert await late == [ground.written[0][3:]]
        waiting.cancel()

    play(story)
    assert 10 < fetches < 100


def test_without_push_support_only_waiting_reads_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = subscribing.SUBSCRIBE._replace(key=1_999)
    monkeypatch.setattr(subscribing, "SUBSCRIBE", unknown)

    async def story(ground: Ground) -> None:
        await ground.write(3)
        assert await polls(ground, [0]) == [ground.written[0]]
        with pytest.raises(MillstreamError, match="does not serve Subscribe") as refused:
            await polls(ground, [3])
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    play(story)


@pytest.mark.parametrize("first_is_patient", [True, False])
def test_reads_that_share_a_fetch_keep_their_own_deadlines(first_is_patient: bool) -> None:
    async def story(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        await ground.write(3)
        await ground.client.read(TOPIC, 0, 0)
        ground.network.block("reader")

        async def ask(timeout_s: float) -> tuple[int | ErrorCode, float]:
            begun_s = loop.time()
            try:
                found = len((await ground.client.read(TOPIC, 0, 0, wait=0.1, timeout=timeout_s)).messages)
            except MillstreamError as error:
                return error.code, loop.time() - begun_s
            return found, loop.time() - begun_s

        times_s = [60.0, 1.0] if first_is_patient else [1.0, 60.0]
        asked = {}
        for timeout_s in times_s:
            asked[timeout_s] = asyncio.create_task(ask(timeout_s))
            await asyncio.sleep(0.05)
        code, took_s = await asked[1.0]
        assert code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
        assert took_s < 1.2
        ground.network.unblock("reader")
        assert (await asked[60.0])[0] == 3

    play(story)


def test_reads_raise_client_closed_when_their_client_closes() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(3)
        client = await ground.machine.connect("other")
        await client.read(TOPIC, 0, 0)
        ground.network.block("other")
        reading = [asyncio.create_task(client.read(TOPIC, 0, 0, wait=wait_s)) for wait_s in (0.0, 5.0, 5.0)]
        await asyncio.sleep(1)
        await client.close()
        for each in reading:
            with pytest.raises(MillstreamError) as caught:
                await each
            assert caught.value.code is ErrorCode.CLIENT_CLOSED
        ground.network.unblock("other")

    play(story)
