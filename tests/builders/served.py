"""A broker's listener over real partitions, and a peer that speaks to it over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from builders.batches import batch
from builders.partitions import NODE_ID, InlineWorkers, TurnedClock
from builders.requests import RawPeer, in_simulation
from millstream.broker.dispatch.apis import ApiDependencies, build_table
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import IteratorServing, IteratorSigner
from millstream.catalog.catalog import Topic
from millstream.catalog.memory import MemoryCatalog
from millstream.catalog.producer_ids import ProducerIds
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.runtime.coordinator import Coordinator
from millstream.groups.settings import GroupSettings
from millstream.partition.served.partitions import Partitions
from millstream.seams.disk import Disk
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import ThreadWorkers, Workers
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.fetch import FetchedPartition, FetchPartition
from millstream.wire.fetch_client import FetchResponse, parse_fetch_response, write_fetch_request
from millstream.wire.produce import ProduceResult, parse_produce_response, write_produce_request
from millstream.wire.puts import parse_puts_response, write_puts_request
from millstream.wire.topic_ref import TopicRef

HOST = "127.0.0.1"
CLUSTER = "test-cluster"
LONG_S = 60.0
"""Longer than any test takes: a wait that is not ended by what it waits for fails the test."""


class Ground:
    """What a broker stands on: in memory and without threads, or on a real disk with them."""

    def __init__(self, directory: Path, policy: FlushPolicy, disk: Disk | None) -> None:
        # A flush that is waited for must really be somebody else's work, or the waiting would not be seen.
        is_real = disk is not None or policy is FlushPolicy.ALWAYS
        self.data = str(directory / "data")
        self.policy = policy
        self.disk: Disk = (disk or LocalDisk()) if is_real else SimulatedDisk()
        self.workers: Workers = ThreadWorkers(2, "work") if is_real else InlineWorkers()
        self.flush_workers: Workers = ThreadWorkers(1, "flush") if is_real else InlineWorkers()
        self.clock = TurnedClock()
        self.catalog = MemoryCatalog(self.clock, SystemEntropy())

    @asynccontextmanager
    async def partitions(self, defaults: Mapping[str, str] | None) -> AsyncIterator[Partitions]:
        store = await LogStore.open(
            [self.data],
            disk=self.disk,
            clock=self.clock,
            workers=self.workers,
            flush_workers=self.flush_workers,
            policy=self.policy,
            entropy=SystemEntropy(),
        )
        try:
            opened = await Partitions(
                self.catalog,
                store,
                clock=self.clock,
                workers=self.workers,
                node_id=NODE_ID,
                defaults=defaults,
            ).open()
            try:
                yield opened
            finally:
                await opened.close()
        finally:
            await store.close()

    def close(self) -> None:
        self.workers.close()
        self.flush_workers.close()


class ServedBroker:
    def __init__(
        self,
        ground: Ground,
        partitions: Partitions,
        memory: MemoryLimits,
        options: dict[str, Any],
        groups: GroupSettings,
    ) -> None:
        self.clock = ground.clock
        self.catalog = ground.catalog
        self.partitions = partitions
        self.iterators = IteratorServing(
            IteratorSigner(b"only tests know this"), ServedIterators(ground.clock, groups.iterator_in_flight_max_ms)
        )
        self.groups = Coordinator(
            partitions,
            groups,
            clock=ground.clock,
            workers=ground.workers,
            entropy=SystemEntropy(),
            tables=ground.catalog.group_tables,
            hand_down=self.iterators.served.told,
        )
        self.memory = memory
        self.identity = BrokerIdentity(NODE_ID, HOST, 0, CLUSTER)
        served = ApiDependencies(
            partitions,
            self.groups,
            ground.catalog,
            ProducerIds(ground.catalog, NODE_ID),
            self.identity,
            ground.clock,
            SystemEntropy(),
            memory,
            "1.5.0",
            self.iterators,
            **options,
        )
        self.table = build_table(served)
        self.listener = Listener(self.table, ground.clock, memory, ground.workers)
        self.network: Network = TcpNetwork()
        self._peers: list[RawPeer] = []

    async def start(self) -> None:
        await self.groups.start()
        listening = await self.listener.start(self.network, HOST, 0)
        self.identity.port = listening.port

    async def stop(self) -> None:
        for peer in self._peers:
            peer.close()
        await self.listener.stop(LONG_S)
        await self.groups.stop()

    async def peer(self) -> RawPeer:
        peer = await RawPeer.connect(TcpNetwork(), HOST, self.identity.port)
        self._peers.append(peer)
        return peer

    async def settle(self) -> None:
        """Wait until no request is under way."""
        await until(lambda: not self.listener.shared.tasks and self.memory.incoming_bytes == 0)

    async def topic(self, name: str = "events", partitions: int = 1, **settings: str) -> Topic:
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        return await self.partitions.create(name, partitions, dotted)


def serve(
    directory: Path,
    story: Callable[[ServedBroker], Awaitable[None]],
    *,
    policy: FlushPolicy = FlushPolicy.OS,
    memory: MemoryLimits | None = None,
    disk: Disk | None = None,
    timeout_s: float = LONG_S,
    groups: GroupSettings | None = None,
    defaults: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Run a story against a broker of its own."""

    ground = Ground(directory, policy, disk)

    async def run() -> None:
        async with ground.partitions(defaults) as partitions:
            broker = ServedBroker(
                ground,
                partitions,
                memory or MemoryLimits(),
                options,
                groups or GroupSettings(initial_rebalance_delay_ms=0),
            )
            await broker.start()
            try:
                await asyncio.wait_for(story(broker), timeout_s)
            finally:
                await broker.stop()

    try:
        asyncio.run(run())
    finally:
        ground.close()


def serve_in_simulation(
    directory: Path,
    story: Callable[[ServedBroker, SimulatedNetwork], Awaitable[None]],
    memory: MemoryLimits | None = None,
) -> None:
    """Run a story against a broker on a simulated network, whose time passes when nobody has anything to do."""

    async def run(network: SimulatedNetwork) -> None:
        ground = Ground(directory, FlushPolicy.OS, None)
        async with ground.partitions(None) as partitions:
            broker = ServedBroker(ground, partitions, memory or MemoryLimits(), {}, GroupSettings())
            broker.network = network.host(HOST)
            await broker.start()
            try:
                await story(broker, network)
            finally:
                await broker.stop()

    in_simulation(run)


async def produce(
    peer: RawPeer,
    topic: TopicRef,
    records: bytes | bytearray | None = None,
    *,
    version: int = 9,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> ProduceResult:
    """One batch to one partition, and what became of it."""
    data = batch() if records is None else records
    body = write_produce_request(version, [(topic, [(partition, data)])], acks=acks, timeout_ms=timeout_ms)
    answer = await peer.ask_raw("Produce", version, body)
    ((_, (result,)),) = parse_produce_response(version, answer, 0)
    return result


async def puts(
    peer: RawPeer,
    topic: str,
    records: bytes | bytearray | None = None,
    *,
    ids: Sequence[bytes] | None = None,
    partition: int = 0,
    hashed: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> ProduceResult:
    """One batch by Puts, and what became of it."""
    data = batch() if records is None else records
    body = write_puts_request([(topic, [(partition, hashed, data, ids)])], acks=acks, timeout_ms=timeout_ms)
    ((_, (result,)),) = parse_puts_response(await peer.ask_raw("Puts", 0, body), 0)
    return result


async def fetch(
    peer: RawPeer,
    wants: Sequence[tuple[TopicRef, Sequence[FetchPartition]]],
    *,
    version: int = 12,
    max_wait_ms: int = 0,
    **options: Any,
) -> FetchResponse:
    body = write_fetch_request(version, wants, max_wait_ms=max_wait_ms, **options)
    return parse_fetch_response(version, await peer.ask_raw("Fetch", version, [body]), 0)


async def fetch_one(
    peer: RawPeer, topic: TopicRef, offset: int, *, partition: int = 0, max_bytes: int = 1_000_000, **options: Any
) -> FetchedPartition:
    """From one partition, without a session."""
    answer = await fetch(peer, [(topic, [FetchPartition(partition, offset, max_bytes)])], **options)
    assert answer.error == 0
    ((_, (fetched,)),) = answer.topics
    return fetched


def topic_ref(topic: Topic, version: int, ids_from: int = 13) -> str | UUID:
    """The topic as this version of Produce or Fetch names it."""
    return topic.topic_id if version >= ids_from else topic.name


async def until(condition: Callable[[], bool]) -> None:
    """Let everybody have their turn until it is so; the story's own timeout ends what never will be."""
    while not condition():  # noqa: ASYNC110  # what is watched is the broker's own state, which sets no event for tests
        await asyncio.sleep(0)
