"""Tests many subscribers in simulated time, slow ones among them: each gets turns, and each has bounded costs."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from builders.batches import numbered_batch
from builders.requests import RawPeer
from builders.sdk.subscriber import Subscriber, wanted
from builders.served import ServedBroker, produce, serve_in_simulation
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import HIGH_WATER_BYTES, READER_SILENCE_S
from millstream.broker.push.partition_push import PartitionPush
from millstream.broker.push.round_robin import ROUND_BYTES, TURNS_MAX, RoundRobin
from millstream.broker.push.subscription import TURN_BYTES, PushSubscription
from millstream.testing.simulated.network import SimulatedNetwork

LOTS = {"window_messages": 10_000_000, "window_bytes": 256 * 1024 * 1024}
BATCHES = 100
BATCH_BYTES = 50_000


async def subscriber(broker: ServedBroker, network: SimulatedNetwork, host: str = "reader") -> Subscriber:
    return Subscriber(await RawPeer.connect(network.host(host), broker.host, broker.port))


async def filled(broker: ServedBroker, network: SimulatedNetwork, batches: int = BATCHES) -> None:
    await broker.topic()
    writer = await RawPeer.connect(network.host("writer"), broker.host, broker.port)
    for number in range(batches):
        await produce(writer, "events", numbered_batch(10, first=10 * number, size_bytes=BATCH_BYTES // 10))


class Turner:
    """A schedulable that wants a number of turns, each of some bytes."""

    def __init__(self, name: int, turns: int, size_bytes: int, taken: list[int]) -> None:
        self.name = name
        self.left = turns
        self.size_bytes = size_bytes
        self.taken = taken
        self.failed: BaseException | None = None

    @property
    def wants_turn(self) -> bool:
        return self.left > 0

    def take_turn(self) -> int:
        self.left -= 1
        self.taken.append(self.name)
        return self.size_bytes

    def fail(self, error: BaseException) -> None:
        self.failed = error


@pytest.mark.parametrize("size_bytes", [0, 1_000, TURN_BYTES, 10 * ROUND_BYTES])
def test_every_waiting_subscription_has_a_turn_between_two_of_another(size_bytes: int) -> None:
    taken: list[int] = []
    looks: list[int] = []

    async def run() -> None:
        turns = RoundRobin()
        takers = [Turner(number, 20, size_bytes, taken) for number in range(50)]
        for taker in takers:
            turns.add(taker)
            turns.add(taker)
        while len(taken) < 1_000:
            looks.append(len(taken))
            await asyncio.sleep(0)

    asyncio.run(run())
    assert taken == list(range(50)) * 20
    most = max(after - before for before, after in pairwise(looks))
    assert most <= (min(TURNS_MAX, -(-ROUND_BYTES // size_bytes)) if size_bytes else TURNS_MAX)


def test_an_exception_in_a_turn_ends_only_its_subscription() -> None:
    taken: list[int] = []

    def broken() -> int:
        raise RuntimeError("a bug")

    async def run() -> list[Turner]:
        turns = RoundRobin()
        takers = [Turner(number, 3, 0, taken) for number in range(3)]
        takers[1].take_turn = broken  # type: ignore[method-assign]
        for taker in takers:
            turns.add(taker)
        for _ in range(10):
            await asyncio.sleep(0)
        return takers

    takers = asyncio.run(run())
    assert taken == [0, 2] * 3
    assert [isinstance(taker.failed, RuntimeError) for taker in takers] == [False, True, False]


def test_subscribers_of_one_topic_are_served_equally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[PushSubscription] = []
    take_turn = PushSubscription.take_turn

    def counted(self: PushSubscription) -> int:
        size = take_turn(self)
        if size:
            turns.append(self)
        return size

    monkeypatch.setattr(PushSubscription, "take_turn", counted)

    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network)
        clients = [await subscriber(broker, network, f"reader-{number}") for number in range(10)]
        readers = [await client.subscribe({"events": {0: 0}}, **LOTS) for client in clients]
        await asyncio.gather(*(reader.receive(10 * BATCHES) for reader in readers))
        assert all(reader.values == readers[0].values for reader in readers)

    serve_in_simulation(tmp_path, story)
    counts = {each: turns.count(each) for each in turns}
    assert len(counts) == 10
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_slow_subscriber_delays_nobody_and_takes_little_memory(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network)
        slow = await subscriber(broker, network, "slow")
        lazy = await slow.subscribe({"events": {0: 0}}, **LOTS)
        slow.peer.transport.pause_reading()
        quick = await subscriber(broker, network, "quick")
        reader = await quick.subscribe({"events": {0: 0}}, **LOTS)
        peak = 0
        while len(reader.values) < 10 * BATCHES:
            await reader.delivery()
            peak = max(peak, broker.memory.outgoing_bytes)
        assert peak <= 2 * (TURN_BYTES + HIGH_WATER_BYTES + BATCH_BYTES)
        slow.peer.transport.resume_reading()
        assert await lazy.receive(10 * BATCHES) == reader.values

    serve_in_simulation(tmp_path, story)


def test_a_subscriber_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network)
        client = await subscriber(broker, network)
        await client.subscribe({"events": {0: 0}}, **LOTS)
        client.peer.transport.pause_reading()
        before = broker.listener.connection_count
        await asyncio.sleep(READER_SILENCE_S + 5)
        assert broker.listener.connection_count == before - 1
        assert broker.memory.outgoing_bytes == 0

    serve_in_simulation(tmp_path, story)


def test_a_subscriber_that_commits_nothing_receives_one_window(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network)
        client = await subscriber(broker, network)
        reader = await client.subscribe({"events": {0: 0}}, window_bytes=4 * BATCH_BYTES)
        await reader.receive(30)
        await asyncio.sleep(3_600)
        assert (broker.memory.outgoing_bytes, len(client.peer.received)) == (0, 0)
        while len(reader.values) < 10 * BATCHES:
            await reader.commit()
            await reader.delivery()

    serve_in_simulation(tmp_path, story)


def test_other_requests_are_answered_during_heavy_push(tmp_path: Path) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        network.conditions.latency_s = network.conditions.jitter_s = 0.0
        await filled(broker, network)
        clients = [await subscriber(broker, network, f"reader-{number}") for number in range(10)]
        readers = [await client.subscribe({"events": {0: 0}}, **LOTS) for client in clients]
        receiving = asyncio.gather(*(reader.receive(10 * BATCHES) for reader in readers))
        other = await subscriber(broker, network, "other")
        answered = 0
        while not receiving.done():
            await other.ask("Info", {})
            answered += 1
        assert answered > 20

    serve_in_simulation(tmp_path, story)


@pytest.mark.parametrize("leave", [lambda network, _: network.cut("reader"), lambda _, peer: peer.transport.abort()])
def test_a_connection_closed_during_a_push_leaves_nothing(
    leave: Callable[[SimulatedNetwork, RawPeer], object], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network)
        before = broker.listener.connection_count
        client = await subscriber(broker, network)
        reader = await client.subscribe({"events": {0: 0}}, **LOTS)
        await reader.receive(30)
        leave(network, client.peer)
        await asyncio.sleep(1)
        partition = broker.partitions.get("events", 0)
        assert partition is not None
        assert (partition.waiting, broker.memory.outgoing_bytes) == (0, 0)
        assert broker.listener.connection_count == before

    serve_in_simulation(tmp_path, story)


def test_deliveries_wait_while_there_is_no_memory(tmp_path: Path) -> None:
    memory = MemoryLimits(outgoing_bytes_max=1_000_000)

    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network, 10)
        client = await subscriber(broker, network)
        memory.outgoing_bytes += 1_000_000
        reader = await client.subscribe({"events": {0: 0}}, **LOTS)
        await asyncio.sleep(10)
        assert not client.peer.received
        memory.outgoing_bytes -= 1_000_000
        await reader.receive(100)

    serve_in_simulation(tmp_path, story, memory)


def test_an_unexpected_failure_closes_only_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: ServedBroker, network: SimulatedNetwork) -> None:
        await filled(broker, network, 3)
        client, other = await subscriber(broker, network), await subscriber(broker, network, "other")

        def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(PartitionPush, "read", broken)
            client.send("Subscribe", {"topics": wanted({"events": {0: 0}})})
            await client.peer.lost()
        reader = await other.subscribe({"events": {0: 0}})
        await reader.receive(30)

    serve_in_simulation(tmp_path, story)
    assert "request failed unexpectedly, connection closed" in caplog.messages
