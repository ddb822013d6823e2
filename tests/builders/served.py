"""Provides a broker's listener over real partitions, and a peer that connects over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from builders.batches import batch
from builders.partitions import HOST, NODE_ID, InlineWorkers, TurnedClock, a_cluster
from builders.requests import RawPeer, in_simulation
from millstream.broker.dispatch.apis import ApiDependencies, build_table
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.signed_iterators import IteratorServing, IteratorSigner
from millstream.catalog.catalog import Topic
from millstream.catalog.memory import MemoryCatalog
from millstream.catalog.producer_ids import ProducerIds
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.iterators.served_iterators import ServedIterators
from millstream.groups.runtime.coordinator import GroupCoordinator
from millstream.groups.settings import GroupSettings
from millstream.model.authorization import ALLOW_ALL
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, TopicId
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

SIMULATED_HOST = "broker"
LONG_S = 60.0
"""Longer than any test: a wait that ends only by its timeout fails the test."""


class Ground:
    """The environment of a broker: in memory without threads, or on a real disk with threads."""

    def __init__(self, directory: Path, policy: FlushPolicy, disk: Disk | None, workers: Workers | None = None) -> None:
        # Flushes must run in another thread, or waiting for them would not be visible.
        is_real = disk is not None or policy is FlushPolicy.ALWAYS
        self.data = str(directory / "data")
        self.policy = policy
        self.disk: Disk = (disk or LocalDisk()) if is_real else SimulatedDisk()
        self.workers: Workers = workers or (ThreadWorkers(2, "work") if is_real else InlineWorkers())
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
                cluster=a_cluster(),
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
        self.group_configs = GroupConfigs(groups, ground.catalog)
        self.groups = GroupCoordinator(
            partitions,
            self.group_configs,
            clock=ground.clock,
            workers=ground.workers,
            entropy=SystemEntropy(),
            tables=ground.catalog.group_tables,
            hand_down=self.iterators.served.told,
        )
        self.memory = memory
        self.cluster = partitions.cluster
        served = ApiDependencies(
            partitions,
            self.groups,
            ground.catalog,
            ProducerIds(ground.catalog, BrokerId(NODE_ID)),
            self.cluster,
            ground.clock,
            SystemEntropy(),
            memory,
            "1.5.0",
            self.iterators,
            self.group_configs,
            **{"authorizer": ALLOW_ALL, **options},
        )
        self.table = build_table(served)
        self.listener = Listener(self.table, ground.clock, memory, ground.workers)
        self.network: Network = TcpNetwork()
        self.host = HOST
        self._peers: list[RawPeer] = []

    async def start(self) -> None:
        await self.group_configs.load()
        await self.groups.start()
        listening = await self.listener.start(self.network, self.host, 0)
        self.cluster.publish(
            self.cluster.image.broker_registered(BrokerEndpoint(BrokerId(NODE_ID), self.host, listening.port))
        )

    async def stop(self) -> None:
        for peer in self._peers:
            peer.close()
        await self.listener.stop(LONG_S)
        await self.groups.stop()

    @property
    def port(self) -> int:
        return self.cluster.image.brokers[BrokerId(NODE_ID)].port

    async def peer(self) -> RawPeer:
        peer = await RawPeer.connect(TcpNetwork(), HOST, self.port)
        self._peers.append(peer)
        return peer

    async def settle(self) -> None:
        """Wait until no request is in flight."""
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
    workers: Workers | None = None,
    timeout_s: float = LONG_S,
    groups: GroupSettings | None = None,
    defaults: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Run a story against a broker of its own."""

    ground = Ground(directory, policy, disk, workers)

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
    """Run a story against a broker on a simulated network, in simulated time."""

    async def run(network: SimulatedNetwork) -> None:
        ground = Ground(directory, FlushPolicy.OS, None)
        async with ground.partitions(None) as partitions:
            broker = ServedBroker(ground, partitions, memory or MemoryLimits(), {}, GroupSettings())
            broker.host = SIMULATED_HOST
            broker.network = network.host(broker.host)
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
    """Send one batch to one partition by Produce, and return its result."""
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
    """Send one batch by Puts, and return its result."""
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
    """Fetch from one partition, without a session."""
    answer = await fetch(peer, [(topic, [FetchPartition(partition, offset, max_bytes)])], **options)
    assert answer.error == 0
    ((_, (fetched,)),) = answer.topics
    return fetched


def topic_ref(topic: Topic, version: int, ids_from: int = 13) -> str | TopicId:
    """Return the topic's name or id, as this version of Produce or Fetch requires."""
    return topic.topic_id if version >= ids_from else topic.name


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until the condition is true; the story's timeout ends an endless wait."""
    while not condition():  # noqa: ASYNC110  # what is watched is the broker's own state, which sets no event for tests
        await asyncio.sleep(0)
