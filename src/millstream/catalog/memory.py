"""Implements the catalog in memory, for tests and simulation.

The object represents the database, not a connection to it. It outlives the broker that uses it, so it survives a
simulated crash. Each call applies all its changes in one step and then yields to the event loop once. As with a
database, cancelling a waiting caller does not undo its change.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from millstream.catalog.catalog import (
    SECRET_BYTES,
    BrokerEntry,
    MakeRoom,
    Placement,
    Topic,
    TopicState,
    check_change,
    check_new_topic,
    check_replicas,
    new_cluster_id,
    no_room,
    placements_from,
    unknown_topic,
)
from millstream.catalog.projection_memory import MemoryGroupTables
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, ProducerId, TopicId
from millstream.model.names import PartitionKey
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy, random_uuid


class MemoryCatalog:
    kind = "memory"

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._cluster_id = new_cluster_id(entropy)
        self._brokers: dict[BrokerId, BrokerEntry] = {}
        self._topics: dict[TopicId, Topic] = {}
        self._placements: dict[PartitionKey, Placement] = {}
        self._next_producer_id = 0
        self.producer_groups: dict[ProducerId, str] = {}
        self._secrets: dict[str, bytes] = {}
        self._group_settings: dict[str, dict[str, str]] = {}
        self.group_tables = MemoryGroupTables()

    async def open(self, make_room: MakeRoom = no_room) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)

    async def cluster_id(self) -> str:
        return self._cluster_id

    async def register_broker(self, node_id: BrokerId, host: str, port: int) -> BrokerEntry:
        before = self._brokers.get(node_id)
        incarnation = before.incarnation + 1 if before else 1
        entry = BrokerEntry(node_id, host, port, incarnation, self._clock.wall_ms())
        self._brokers[node_id] = entry
        await asyncio.sleep(0)
        return entry

    async def brokers(self) -> list[BrokerEntry]:
        return sorted(self._brokers.values())

    async def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str], replicas: Sequence[Sequence[BrokerId]]
    ) -> Topic:
        check_new_topic(name, partitions, replicas)
        for topic in self._topics.values():
            if topic.name == name and topic.state is not TopicState.DELETING:
                raise MillstreamError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        topic_id = TopicId(random_uuid(self._entropy))
        topic = Topic(name, topic_id, partitions, dict(settings), TopicState.CREATING, self._clock.wall_ms())
        self._topics[topic_id] = topic
        self._place(topic_id, 0, replicas)
        await asyncio.sleep(0)
        return topic

    async def set_ready(self, topic_id: TopicId) -> None:
        await self._set_state(topic_id, TopicState.READY)

    async def delete_topic(self, topic_id: TopicId) -> None:
        await self._set_state(topic_id, TopicState.DELETING)

    async def forget_topic(self, topic_id: TopicId) -> None:
        topic = self._topics.get(topic_id)
        if topic is not None and topic.state is TopicState.DELETING:
            del self._topics[topic_id]
            self._remove_placements(topic, 0)
        await asyncio.sleep(0)

    async def change_settings(self, topic_id: TopicId, settings: Mapping[str, str]) -> None:
        self._topics[topic_id] = replace(self._ready(topic_id), settings=dict(settings))
        await asyncio.sleep(0)

    async def begin_growth(self, topic_id: TopicId, replicas: Sequence[Sequence[BrokerId]]) -> None:
        check_replicas(str(topic_id), replicas)
        topic = self._ready(topic_id)
        self._remove_placements(topic, topic.partitions)
        self._place(topic_id, topic.partitions, replicas)
        self._topics[topic_id] = replace(topic, growing_to=topic.partitions + len(replicas) if replicas else 0)
        await asyncio.sleep(0)

    async def finish_growth(self, topic_id: TopicId) -> None:
        topic = self._ready(topic_id)
        self._topics[topic_id] = replace(topic, partitions=topic.growing_to or topic.partitions, growing_to=0)
        await asyncio.sleep(0)

    async def abandon_growth(self, topic_id: TopicId) -> None:
        topic = self._ready(topic_id)
        self._remove_placements(topic, topic.partitions)
        self._topics[topic_id] = replace(topic, growing_to=0)
        await asyncio.sleep(0)

    async def topics(self) -> list[Topic]:
        return list(self._topics.values())

    async def placements(self) -> list[Placement]:
        return sorted(self._placements.values(), key=_text_key)

    async def begin_leadership(self, node_id: BrokerId, *, without: Collection[PartitionKey] = ()) -> list[Placement]:
        led = [each for each in await self.placements() if each.leader == node_id and each.key not in without]
        led = [
            p._replace(leader_epoch=LeaderEpoch(p.leader_epoch + 1), partition_epoch=p.partition_epoch + 1) for p in led
        ]
        self._placements.update({placement.key: placement for placement in led})
        await asyncio.sleep(0)
        return led

    async def change_placement(self, changed: Placement) -> Placement | None:
        current = self._placements.get(changed.key)
        if current is None or current.partition_epoch != changed.partition_epoch:
            return None
        check_change(current, changed)
        stored = changed._replace(partition_epoch=changed.partition_epoch + 1)
        self._placements[changed.key] = stored
        await asyncio.sleep(0)
        return stored

    async def next_producer_ids(self, count: int, node_id: BrokerId) -> range:
        first = self._next_producer_id
        self._next_producer_id += count
        await asyncio.sleep(0)
        return range(first, first + count)

    async def bind_producer(self, producer_id: ProducerId, producer_group: str, node_id: BrokerId) -> None:
        self.producer_groups[producer_id] = producer_group
        await asyncio.sleep(0)

    async def trim_producers(self, keep: int) -> None:
        for producer_id in sorted(self.producer_groups, reverse=True)[keep:]:
            del self.producer_groups[producer_id]
        await asyncio.sleep(0)

    async def secret(self, name: str) -> bytes:
        if name not in self._secrets:
            self._secrets[name] = self._entropy.token(SECRET_BYTES)
        return self._secrets[name]

    async def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        return {group_id: dict(settings) for group_id, settings in self._group_settings.items()}

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        self._group_settings.pop(group_id, None)
        if settings:
            self._group_settings[group_id] = dict(settings)
        await asyncio.sleep(0)

    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        raise MillstreamError(
            ErrorCode.INVALID_REQUEST, "the catalog of this broker is in memory; only a SQLite catalog can be queried"
        )

    async def _set_state(self, topic_id: TopicId, state: TopicState) -> None:
        topic = self._topics.get(topic_id)
        if topic is None or topic.state is TopicState.DELETING:
            raise unknown_topic(topic_id)
        self._topics[topic_id] = replace(topic, state=state)
        await asyncio.sleep(0)

    def _ready(self, topic_id: TopicId) -> Topic:
        topic = self._topics.get(topic_id)
        if topic is None or topic.state is not TopicState.READY:
            raise unknown_topic(topic_id)
        return topic

    def _place(self, topic_id: TopicId, first: int, replicas: Sequence[Sequence[BrokerId]]) -> None:
        self._placements.update({each.key: each for each in placements_from(topic_id, first, replicas)})

    def _remove_placements(self, topic: Topic, first: int) -> None:
        for number in range(first, max(topic.partitions, topic.growing_to)):
            del self._placements[PartitionKey(topic.topic_id, number)]


def _text_key(placement: Placement) -> tuple[str, int]:
    return str(placement.key.topic_id), placement.key.partition
