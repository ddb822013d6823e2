"""Whoever reads from place to place sees exactly the log, whatever becomes of connections and brokers meanwhile."""

import asyncio
import logging
from collections.abc import Mapping
from random import Random

import pytest

from builders.loops import for_each
from builders.sdk.simulated_consumers import LONG_S, TOPIC, Ground, place, play, values
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.header import CorruptBatch
from millstream.sdk.subscribing import requests as subscribing
from millstream.sdk.watching import backlog_fetch, recent_cache
from millstream.sdk.watching.backlog_fetch import BacklogFetch, Portions
from millstream.sdk.watching.engine import CHECK_TICKS, TICK_S, WatchEngine
from millstream.sdk.watching.read_result import ReadResult
from millstream.sdk.watching.recent_cache import SHELF_BYTES
from millstream.sdk.watching.watch_connection import WINDOW

PARTITIONS = 3
MESSAGES = 150


def watching(ground: Ground) -> WatchEngine:
    found = ground.client._context._watching
    assert found is not None
    return found


async def begun(ground: Ground, count: int = 1) -> None:
    await asyncio.sleep(1)
    assert sum(watch.waiting for watch in watching(ground)._watches.values()) == count


class Poller:
    """Reads some partitions from some places on, as a caller does that keeps them itself."""

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
            for where, portion in found.items():
                assert [message.offset for message in portion.messages] == list(
                    range(self._at[where], portion.next_offset)
                ), "all of it, and nothing else"
                self._found[where.partition] += values(portion.messages)
                self._at[where] = portion.next_offset
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
def test_readers_at_any_place_see_exactly_the_log(seed: int) -> None:
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
    portions = await asyncio.gather(*(ground.client.read(TOPIC, 0, offset, wait=wait_s) for offset in offsets))
    return [values(portion.messages) for portion in portions]


def test_a_restart_wakes_nobody_and_what_comes_after_it_wakes_all() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5, 5, 6, 7]))
        await begun(ground, 4)
        await ground.restart(pause_s=20)
        await asyncio.sleep(20)
        await begun(ground, 4)
        await ground.write(3)
        assert await timed_s(waiting) < 0.1
        assert waiting.result() == [ground.written[0][5:]] * 2 + [ground.written[0][6:], ground.written[0][7:]]

    play(story)


@pytest.mark.parametrize("offset", [5, 7])
def test_what_is_written_while_the_broker_cannot_be_heard_wakes_who_waits_for_it(offset: int) -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [offset] * 100))
        await begun(ground, 100)
        ground.network.block("reader")
        ground.network.cut("reader")
        await asyncio.sleep(5)
        await ground.write(10)
        ground.network.unblock("reader")
        assert await timed_s(waiting) < 30
        assert waiting.result() == [ground.written[0][offset:]] * 100

    play(story)


def test_a_connection_that_has_died_in_silence_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.sdk.watching")

    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(polls(ground, [0]))
        await begun(ground)
        ground.network.block("reader")
        await asyncio.sleep(CHECK_TICKS * TICK_S + 15)
        assert any(text.startswith("watching again") for text in caplog.messages)
        ground.network.unblock("reader")
        await ground.write(1)
        assert await timed_s(waiting) < 30

    play(story)


def test_a_broker_that_is_not_there_is_named_when_the_time_is_over() -> None:
    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5], wait_s=5.0))
        await begun(ground)
        await ground.node.stop()
        with pytest.raises(MillstreamError) as lost:
            await asyncio.wait_for(waiting, LONG_S)
        assert lost.value.code is ErrorCode.NETWORK_EXCEPTION
        ground.node = await ground.machine.start()
        assert (await polls(ground, [0])) == [ground.written[0]]

    play(story)


def test_what_nobody_reads_is_sent_a_window_at_most_and_all_is_there_for_who_comes_back() -> None:
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
            portion = await ground.client.read(TOPIC, 0, len(found), wait=60)
            assert portion.messages
            found += values(portion.messages)
            assert engine._cache.size_bytes <= SHELF_BYTES
        assert found == large

    play(story)


def test_who_knows_of_a_later_place_is_not_sent_all_that_lies_before_it() -> None:
    """As one does that waits for news and has the messages read by others."""

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
        await begun(ground)
        await ground.writer.put(TOPIC, [b"news"], partition=0)
        assert values((await waiting).messages) == [b"news"]
        assert engine._watches[place(0)] is watch

    play(story)


def test_what_comes_damaged_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = 0

    def decode(stored: memoryview, topic: str, partition: int, **_: object) -> object:
        nonlocal damaged
        damaged += 1
        raise CorruptBatch("a bit has turned")

    async def story(ground: Ground) -> None:
        waiting = asyncio.ensure_future(polls(ground, [0]))
        await begun(ground)
        with monkeypatch.context() as patched:
            patched.setattr(recent_cache, "decode_messages", decode)
            await ground.write(3)
            assert await waiting == [ground.written[0]]
        assert damaged == 1
        with monkeypatch.context() as patched:
            patched.setattr(backlog_fetch, "decode_messages", decode)
            with pytest.raises(MillstreamError, match="a bit has turned") as refused:
                await ground.client.read(TOPIC, 0, 0)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE

    play(story)


def test_a_fetch_that_does_not_see_what_was_delivered_is_repeated_at_leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = 0

    async def blind(self: BacklogFetch, offsets: Mapping[TopicPartition, int], *_: object) -> Portions:
        nonlocal fetches
        fetches += 1
        return {where: ReadResult(*where, [], offset, 0, offset) for where, offset in offsets.items()}

    async def story(ground: Ground) -> None:
        await ground.write(5)
        waiting = asyncio.ensure_future(polls(ground, [5]))
        await begun(ground)
        with monkeypatch.context() as patched:
            patched.setattr(BacklogFetch, "share", blind)
            late = asyncio.ensure_future(polls(ground, [3]))
            await asyncio.sleep(60)
        assert await late == [ground.written[0][3:]]
        waiting.cancel()

    play(story)
    assert 10 < fetches < 100


def test_a_broker_that_does_not_push_says_so_to_who_waits_and_is_read_all_the_same(
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
def test_of_those_who_ask_the_same_each_tries_for_as_long_as_it_has_time(first_is_patient: bool) -> None:
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


def test_a_read_that_is_closed_under_is_told_and_not_cancelled() -> None:
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
