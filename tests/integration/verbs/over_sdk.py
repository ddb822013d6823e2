"""Implements the verbs with the Python SDK."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

import millstream
from integration.verbs.shapes import InFlight, PartitionRow, Place, Read, Refused, Stored, StoredOnce, TopicRow
from millstream.model.errors import MillstreamError
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.iterating.requests import GroupIterator

F = TypeVar("F", bound=Callable[..., Any])


def _named(function: F) -> F:
    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except MillstreamError as error:
            raise Refused(error.code.name, getattr(error, "field", None), error.detail) from error

    return called  # type: ignore[return-value]


def _text(data: Any) -> str:
    return bytes(data).decode()


class OverSdk:
    """Calls a blocking client, which is generated from the asyncio one."""

    def __init__(self, bootstrap: str) -> None:
        self.client = millstream.connect(bootstrap)
        self._producer = self.client.producer()
        self._calls = self.client.iterator_calls()
        for name in [name for name in dir(type(self)) if not name.startswith("_") and name != "close"]:
            setattr(self, name, _named(getattr(self, name)))

    def close(self) -> None:
        self.client.close()

    # Topics.

    def list_topics(self, after: str, limit: int) -> list[TopicRow]:
        page = self.client.admin.list_topics(after=after, limit=limit)
        sizes = self.client.admin.topic_sizes(page.topics)
        return [TopicRow(row.view.name, len(row.view.partitions), row.messages or 0) for row in sizes]

    def create_topic(self, name: str, partitions: int = -1, settings: Mapping[str, str] | None = None) -> str:
        return str(self.client.create_topic(name, partitions=partitions, settings=settings))

    def add_partitions(self, topic: str, total: int) -> None:
        self.client.admin.create_partitions(topic, total)

    def describe_topic(self, topic: str) -> list[PartitionRow]:
        rows = self.client.admin.partition_sizes(self.client.describe_topic(topic))
        return [
            PartitionRow(view.number, view.leader_id, view.replicas, view.in_sync, extent.first, extent.next)
            for view, extent, _ in rows
            if extent is not None
        ]

    def log_directories(self, topic: str) -> list[Place]:
        found = self.client.admin.describe_log_dirs({topic: [0]})
        return [Place(*where) for directory in found for where in directory.partition_bytes]

    def delete_topic(self, topic: str) -> None:
        self.client.delete_topic(topic)

    def delete_messages(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        places = {millstream.TopicPartition(topic, partition): offset for partition, offset in before.items()}
        return {where.partition: offset for where, offset in self.client.admin.delete_records(places).items()}

    def topic_settings(self, topic: str) -> dict[str, str | None]:
        return self._settings("topic", topic)

    def change_topic_settings(self, topic: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self.client.admin.alter_settings("topic", topic, chosen, unset=unset)

    def _settings(self, kind: str, name: str) -> dict[str, str | None]:
        found = self.client.admin.describe_settings(kind, name)
        return {each.name: each.value for each in found if each.is_own}

    # Writing.

    def put(self, topic: str, value: str | None, key: str | None = None, partition: int | None = None) -> Stored:
        place = self._producer.put(topic, value, key, partition=partition).result()
        return Stored(place.partition, place.offset)

    def put_many(self, topic: str, values: Sequence[str]) -> list[Stored]:
        places = self._producer.put_many(topic, values).result()
        return [Stored(place.partition, place.offset) for place in places]

    def put_by_hash(self, topic: str, value: str, hash: int) -> Stored:
        place = self._producer.put(topic, value, hash=hash).result()
        return Stored(place.partition, place.offset)

    def put_once(self, topic: str, value: str, message_id: str) -> StoredOnce:
        place = self._producer.put(topic, value, message_id=message_id).result()
        return StoredOnce(place.partition, place.offset, place.duplicate)

    def put_tombstone(self, topic: str, key: str | None) -> Stored:
        place = self._producer.put(topic, None, key).result()
        return Stored(place.partition, place.offset)

    # Reading.

    def get(
        self, topic: str, partition: int, offset: int | str, max_messages: int = 500, wait_s: float | str = 0
    ) -> list[Read]:
        found = self.client.read(topic, partition, offset, max_messages=max_messages, wait=wait_s)
        return [Read(each.offset, _text(each.value)) for each in found.messages]

    def long_poll(self, topic: str, offset: int) -> list[Read]:
        return self.get(topic, 0, offset, wait_s=60)

    def poll(self, topic: str) -> tuple[list[Read], int]:
        with self.client.consumer(topic, start="beginning") as consumer:
            found = [Read(each.offset, _text(each.value)) for each in consumer.poll(60)]
            return found, consumer.position(topic, 0) or 0

    def find_offsets(self, topic: str, at: str | int, *, in_wrong_unit: bool = False) -> dict[int, int]:
        when = at if isinstance(at, str) or in_wrong_unit else at / 1000
        numbers = [row.number for row in self.client.describe_topic(topic).partitions]
        found = self.client.offsets({millstream.TopicPartition(topic, number): when for number in numbers})
        return {where.partition: listed.offset for where, listed in found.items()}

    def subscribe(self, topic: str, count: int, start: str | None = None) -> list[Read]:
        with self.client.subscription(topic, start=start) as subscription:
            return [Read(each.offset, _text(each.value)) for each in islice(subscription, count)]

    # Groups.

    def read_in_group(self, topic: str, group: str, count: int, start: str | None = None) -> list[str]:
        found: list[str] = []
        options: Any = {} if start is None else {"start": start}
        with self.client.iterators(topic, group=group, **options) as iterators:
            while len(found) < count:
                batch = iterators.poll(60)
                found += [] if batch is None else [_text(message.value) for message in batch.messages]
            iterators.finish()
        return found

    def list_groups(self) -> dict[str, str]:
        return {row.group_id: row.state for row in self.client.groups.list()}

    def describe_group(self, group: str) -> tuple[str, list[str]]:
        found = self.client.groups.describe(group)
        return found.state, sorted(topic for member in found.members for topic in member.topics)

    def delete_group(self, group: str) -> None:
        self.client.groups.delete(group)

    def group_lag(self, group: str) -> dict[Place, int | None]:
        return {Place(*where): row.lag for where, row in self.client.groups.lag(group).items()}

    def group_offsets(self, group: str) -> dict[Place, int]:
        return {Place(*where): row.offset for where, row in self.client.groups.offsets(group).items()}

    def commit_offsets(self, group: str, topic: str, offset: int) -> None:
        self.client.groups.commit(group, {millstream.TopicPartition(topic, 0): CommittedOffset(offset)})

    def delete_offsets(self, group: str, topic: str) -> None:
        self.client.groups.delete_offsets(group, [millstream.TopicPartition(topic, 0)])

    def group_settings(self, group: str) -> dict[str, str | None]:
        return self._settings("group", group)

    def change_group_settings(self, group: str, chosen: Mapping[str, str], unset: Sequence[str] = ()) -> None:
        self.client.admin.alter_settings("group", group, chosen, unset=unset)

    # Iterators.

    def join_group(self, group: str, client_id: str) -> list[Place]:
        return [Place(*where) for where in self._calls.join(group, client_id).owned]

    def heartbeat(self, group: str, client_id: str) -> list[Place]:
        return [Place(*where) for where in self._calls.heartbeat(group, client_id).owned]

    def leave_group(self, group: str, client_id: str) -> None:
        self._calls.leave(group, client_id)

    def get_iterator(self, group: str, client_id: str, topic: str, partition: int = 0) -> Place:
        return Place(*self._calls.get(group, client_id, topic, partition)[:2])

    def list_iterators(self, group: str) -> list[InFlight]:
        return [InFlight(row.client_id, *row.where) for row in self._calls.list(group)]

    def read_iterator(self, iterator: GroupIterator) -> list[Read]:
        return [Read(each.offset, _text(each.value)) for each in self._calls.read(iterator).messages]

    def deliver_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int) -> None:
        self._calls.deliver(group, client_id, iterator, count)

    def commit_iterator(self, group: str, client_id: str, iterator: GroupIterator, count: int | None) -> int:
        return self._calls.commit(group, client_id, iterator, count).position

    # The cluster.

    def service_map(self, topics: Sequence[str]) -> dict[Place, int]:
        return {Place(*where): row.node_id for where, row in self.client.service_map(topics).leaders.items()}

    def backup_map(self, topics: Sequence[str]) -> dict[Place, int]:
        return {Place(*where): row.end_offset for where, row in self.client.backup_map(topics).partitions.items()}

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        found = self.client.admin.query(sql)
        return list(found.columns), [list(row) for row in found.rows]

    def info(self) -> tuple[str, str]:
        broker = self.client.info().broker
        return broker.version, broker.cluster_id

    def describe_cluster(self) -> dict[int, int]:
        return {broker.node_id: broker.port for broker in self.client.admin.describe_cluster().brokers}

    def broker_settings(self, broker: int) -> dict[str, str | None]:
        return {each.name: each.value for each in self.client.admin.describe_settings("broker", str(broker))}

    def change_broker_settings(self, broker: int, chosen: Mapping[str, str]) -> None:
        self.client.admin.alter_settings("broker", str(broker), chosen)
