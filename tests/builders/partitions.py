"""Runs brokers one after another on the same data directory, catalog and clock."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from builders.batches import SOME_TIME_MS
from millstream.catalog.catalog import Catalog, Placement, Topic, TopicState
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.catalog.memory import MemoryCatalog
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from millstream.model.names import PartitionKey
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.records.batch import decode_batches
from millstream.records.header import each_batch
from millstream.records.record import Record
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.workers import ThreadWorkers, Workers
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.disk import SimulatedDisk

T = TypeVar("T")

NODE_ID = 1
HOST = "127.0.0.1"
CLUSTER = "test-cluster"
ELSEWHERE = BrokerEndpoint(BrokerId(2), "broker-2.example", 9192, "rack-b")
"""Another broker of the cluster."""


def a_cluster(port: int = 0) -> ClusterMetadata:
    """Return the metadata of a cluster of one broker without topics."""
    return ClusterMetadata.of_single_broker(CLUSTER, BrokerEndpoint(BrokerId(NODE_ID), HOST, port))


class TurnedClock:
    """A clock that stands still until the test sets it."""

    def __init__(self) -> None:
        self.now_ms = SOME_TIME_MS
        self.jumped_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.jumped_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def turn(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


class InlineWorkers:
    """Workers that run each job at once in the caller, so that a killed broker has no pending job."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


class SlowWorkers:
    """Workers that delay their jobs, and record the highest number of concurrent jobs."""

    def __init__(self) -> None:
        self.busy = self.busiest = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.ensure_future(self._do(work))

    async def _do(self, work: Callable[[], T]) -> T:
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        for _ in range(3):
            await asyncio.sleep(0)
        self.busy -= 1
        return work()

    def close(self) -> None:
        pass


class Site:
    """The state that outlives a broker: with a directory on the real disk with threads, otherwise in memory."""

    def __init__(self, directory: Path | None = None, *, policy: FlushPolicy = FlushPolicy.ALWAYS) -> None:
        self.data = str(directory or "/data")
        self.policy = policy
        self.clock = TurnedClock()
        self.catalog: Catalog = MemoryCatalog(self.clock, SystemEntropy())
        self.disk = SimulatedDisk()
        self._real_disk = LocalDisk() if directory else None
        self._workers: Workers = ThreadWorkers(2, "work") if directory else InlineWorkers()
        self.store: LogStore | None = None
        self.partitions: Partitions | None = None

    async def start(self, defaults: Mapping[str, str] | None = None, **options: Any) -> Partitions:
        self.store = await LogStore.open(
            [self.data],
            disk=self._real_disk or self.disk,
            clock=self.clock,
            workers=self._workers,
            flush_workers=self._workers,
            policy=self.policy,
            entropy=SystemEntropy(),
        )
        self.partitions = await Partitions(
            self.catalog,
            self.store,
            clock=self.clock,
            workers=self._workers,
            cluster=a_cluster(),
            defaults=defaults,
            **options,
        ).open()
        return self.partitions

    async def stop(self) -> None:
        partitions, self.partitions = self.partitions, None
        store, self.store = self.store, None
        if partitions is not None:
            await partitions.close()
        if store is not None:
            await store.close()

    async def kill(self, *, power_loss: Random | None = None) -> None:
        """Stop the broker like `kill -9`, or like a power loss: the disk keeps its current state."""
        assert self._real_disk is None, "only a disk in memory can be copied while the broker runs"
        kept = copy.deepcopy(self.disk)
        kept.locks.clear()
        if power_loss is not None:
            kept.power_loss(power_loss)
        self.disk.before = None
        await self.stop()
        self.disk = kept

    async def restart(self, *, killed: bool = False, **options: Any) -> Partitions:
        await (self.kill() if killed else self.stop())
        return await self.start(**options)

    def run(self, story: Callable[["Site"], Awaitable[None]]) -> None:
        """Run a story on this site, and stop everything at the end."""

        async def whole() -> None:
            try:
                await story(self)
            finally:
                await self.stop()

        try:
            asyncio.run(whole())
        finally:
            self._workers.close()


async def committed(partition: Leadership, records: bytes | bytearray) -> int:
    """Append records, wait for the acknowledgement, and return the offset."""
    appended = partition.append(memoryview(bytearray(records)))
    if appended.acknowledgement is not None:
        await appended.acknowledgement
    return appended.base_offset


async def read_all(partition: Leadership, offset: int | None = None, max_bytes: int = 10_000_000) -> list[Record]:
    """Return all readable records from `offset` (default: the log start) on."""
    records: list[Record] = []
    position = partition.log.start_offset if offset is None else offset
    while True:
        found = partition.reader.read(Offset(position), max_bytes=max_bytes)
        data, _ = found or await partition.reader.read_cold(Offset(position), max_bytes=max_bytes)
        if not data:
            return records
        if not isinstance(data, bytes | bytearray):
            data = data.read(len(data))
        records += [record for record in decode_batches(data) if record.offset >= position]
        *_, (_, last) = each_batch(data)
        position = last.next_offset


def definition(partitions: Partitions, name: str) -> tuple[TopicId, int, Mapping[str, str]] | None:
    """Return a topic's id, partition count and settings, which survive a restart."""
    topic = partitions.image.topic(name)
    return (topic.topic_id, topic.partitions, topic.settings) if topic is not None else None


async def check_in_step(site: Site, partitions: Partitions) -> None:
    """Assert that exactly the partitions that are ready in the catalog are served and have logs."""
    ready = {topic.topic_id: topic for topic in await site.catalog.topics() if topic.state is TopicState.READY}
    image = partitions.image
    assert {topic.topic_id: topic.name for topic in image.topics()} == {i: t.name for i, t in ready.items()}
    rows = {row.key: row for row in await site.catalog.placements() if row.key.topic_id in ready}
    assert {placement.key: placement for topic in image.topics() for placement in topic.placements} == rows
    assert {partition.key for partition in partitions.all()} == rows.keys()
    assert site.store is not None
    assert set(site.store.keys()) == rows.keys()


def a_topic(name: str, number: int, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Topic:
    return Topic(name, TopicId(UUID(int=number)), partitions, settings or {})


def placed(
    topic_id: TopicId,
    number: int,
    leader: int = NODE_ID,
    *,
    epoch: int = 0,
    change: int = 0,
    replicas: Sequence[int] = (),
) -> Placement:
    nodes = tuple(map(BrokerId, replicas or (leader,)))
    return Placement(PartitionKey(topic_id, number), BrokerId(leader), LeaderEpoch(epoch), change, nodes, nodes)


def add_topic_elsewhere(cluster: ClusterMetadata, name: str, partitions: int = 1, *, epoch: int = 4) -> Topic:
    """Add a topic without a replica on this broker; broker 2 leads it."""
    cluster.publish(cluster.image.broker_registered(ELSEWHERE))
    topic = a_topic(name, 1_000 + cluster.image.version, partitions)
    rows = [placed(topic.topic_id, number, ELSEWHERE.node_id, epoch=epoch) for number in range(partitions)]
    cluster.publish(cluster.image.topic_created(topic, rows))
    return topic


def add_partitions_elsewhere(cluster: ClusterMetadata, name: str, count: int, *, epoch: int = 4) -> None:
    """Add partitions of a topic that broker 2 leads."""
    cluster.publish(cluster.image.broker_registered(ELSEWHERE))
    topic = cluster.image.topic(name)
    assert topic is not None
    rows = [
        placed(topic.topic_id, number, ELSEWHERE.node_id, epoch=epoch)
        for number in range(topic.partitions, topic.partitions + count)
    ]
    cluster.publish(cluster.image.topic_grown(topic.topic_id, rows))


async def move_leader(catalog: Catalog, partitions: Partitions, where: tuple[str, int], leader: BrokerId) -> None:
    """Make a broker the leader of a partition, in the catalog and then on this broker."""
    before = partitions.image.placement(*where)
    assert before is not None
    nodes = (BrokerId(NODE_ID), ELSEWHERE.node_id)
    changed = before._replace(leader_epoch=LeaderEpoch(before.leader_epoch + 1), replicas=nodes, in_sync=nodes)
    stored = await catalog.change_placement(changed._replace(leader=leader))
    assert stored is not None
    partitions.placement_changed(stored)
