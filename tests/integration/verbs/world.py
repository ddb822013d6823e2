"""Provides one broker with its gateway, and topics, groups and clusters made for single calls."""

import itertools
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import millstream
from integration.verbs.shapes import Place
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.admin.group_results import CommittedOffset
from millstream.sdk.iterating.requests import GroupIterator
from millstream.testing.real_broker import RealBroker

CLIENT = "somebody"


class Owned(NamedTuple):
    """A client of a group, with the iterator of its topic's only partition."""

    group: str
    topic: str
    iterator: GroupIterator


class World:
    """Makes the objects that cases need, and inspects the state after a call."""

    def __init__(self, broker: RealBroker, makers: Any) -> None:
        self.broker = broker
        self._makers = makers
        self.client = millstream.connect(broker.bootstrap)
        self._producer = self.client.producer()
        self._calls = self.client.iterator_calls()
        self._numbers = itertools.count(1)
        self._cluster = ""
        self._threads: list[threading.Thread] = []
        self._is_enough = threading.Event()

    def close(self) -> None:
        self.stop_putting()
        for thread in self._threads:
            thread.join(60)
        self.client.close()

    def unused(self) -> str:
        """A name of something that does not exist."""
        return f"verbs-{next(self._numbers):04}"

    def topic(self, *values: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic with these messages in its first partition."""
        name = self.unused()
        self.client.create_topic(name, partitions=partitions, settings=settings)
        if values:
            self._producer.put_many(name, list(values), partition=0).result()
        return name

    def put_soon(self, topic: str, value: str) -> None:
        """Write a message in the background."""
        thread = threading.Thread(target=lambda: self._producer.put(topic, value, partition=0).result())
        self._threads.append(thread)
        thread.start()

    def growing_topic(self) -> str:
        """Create a topic with the message "old". New messages are written to it all the time, until `stop_putting`."""
        topic = self.topic("old")

        def put() -> None:
            while not self._is_enough.wait(0.05):
                self._producer.put(topic, "new", partition=0).result()

        self._is_enough.clear()
        thread = threading.Thread(target=put)
        self._threads.append(thread)
        thread.start()
        return topic

    def stop_putting(self) -> bool:
        self._is_enough.set()
        return True

    def partitions(self, topic: str) -> int:
        return len(self.client.describe_topic(topic).partitions)

    def is_there(self, topic: str) -> bool:
        return any(view.name == topic for view in self.client.list_topics())

    def values(self, topic: str, partition: int = 0) -> list[str]:
        found = self.client.read(topic, partition, "beginning").messages
        return [bytes(message.value or b"").decode() for message in found]

    def keys_and_values(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        found = self.client.read(topic, 0, "beginning").messages
        return [(message.key, message.value) for message in found]

    def own_settings(self, kind: str, name: str) -> dict[str, str | None]:
        return {row.name: row.value for row in self.client.admin.describe_settings(kind, name) if row.is_own}

    # Groups.

    def group(self, topic: str, offset: int = 1) -> str:
        """Create a group without members that has a committed offset."""
        name = self.unused()
        self.client.groups.commit(name, {millstream.TopicPartition(topic, 0): CommittedOffset(offset)})
        return name

    def committed(self, group: str) -> dict[Place, int]:
        return {Place(*where): row.offset for where, row in self.client.groups.offsets(group).items()}

    def member(self) -> str:
        """Create a group of iterators with one client that reads nothing yet."""
        group = self.unused()
        self.join(group, CLIENT)
        return group

    def join(self, group: str, client_id: str) -> None:
        self._calls.join(group, client_id)

    def is_member(self, group: str) -> bool:
        try:
            self._calls.heartbeat(group, CLIENT)
        except MillstreamError as error:
            return error.code is not ErrorCode.UNKNOWN_MEMBER_ID
        return True

    def owned(self, *values: str) -> Owned:
        """Create a client of a group that owns a topic with these messages."""
        topic, group = self.topic(*values), self.member()
        given = self._calls.get(group, CLIENT, topic, 0, max_messages=100)
        return Owned(group, topic, self._calls.read(given).iterator)

    def commit(self, group: str, iterator: GroupIterator, count: int) -> None:
        self._calls.commit(group, CLIENT, iterator, count)

    def delivered(self, group: str) -> int:
        (listed,) = self._calls.list(group, CLIENT)
        return listed.delivered

    # Clusters.

    def cluster(self) -> str:
        """A running cluster that all cases share."""
        if not self._cluster:
            self._cluster = self.further_cluster()
        return self._cluster

    def further_cluster(self) -> str:
        name = self.unused()
        self._makers.create_cluster(name, 1)
        return name

    def clusters(self) -> list[str]:
        found: list[str] = self._makers.list_clusters()
        return found
