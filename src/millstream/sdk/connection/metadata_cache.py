"""Caches the brokers, topics and partition leaders that metadata responses and refusals describe. Pure: no I/O.

A refusal may name the current leader and its address (KIP-951). The cache then has the new leader before any metadata
response names it.

Invariants:

- The leader epoch of a partition never decreases while its topic keeps its id. A broker that lags behind describes an
  older leader; the cache keeps the newer one.
- A forgotten topic is not returned until the next metadata response describes it. Its leader epochs still count.
"""

from math import inf
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.responses import Broker, ClusterView, NotLeaderError, PartitionView, TopicView, refusal

TOPIC_CACHE_S = 300.0
"""Maximum age of a topic's cached metadata. Clients see added partitions after this time at the latest."""

LEADERLESS_TOPIC_CACHE_S = 1.0
"""Maximum age of cached metadata in which a partition has no leader, since one is elected soon."""


class _CachedTopic(NamedTuple):
    """The metadata of a topic and the time at which it expires."""

    until_s: float
    view: TopicView


class MetadataCache:
    """Holds the last known metadata of brokers and topics."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self._topics: dict[str, _CachedTopic] = {}

    def update(self, described: ClusterView, now_s: float) -> None:
        """Cache a metadata response; topics with an error in it are dropped."""
        self.brokers = dict(described.brokers)
        for name, topic in described.topics.items():
            if topic.error_number:
                self._topics.pop(name, None)
            else:
                view = self._with_newer_leaders(topic)
                is_led = all(row.leader_id >= 0 for row in view.partitions)
                use_s = TOPIC_CACHE_S if is_led else LEADERLESS_TOPIC_CACHE_S
                self._topics[name] = _CachedTopic(now_s + use_s, view)

    def _with_newer_leaders(self, topic: TopicView) -> TopicView:
        """Return the metadata of a topic, in which a cached leader replaces a leader of an older epoch."""
        cached = self._topics.get(topic.name)
        if cached is None or topic.topic_id != cached.view.topic_id or topic.topic_id == NO_TOPIC_ID:
            return topic
        known = {row.number: row for row in cached.view.partitions}
        return topic._replace(partitions=tuple(_newer(row, known.get(row.number)) for row in topic.partitions))

    def address(self, node_id: int) -> Address | None:
        """Return the address of this broker; None if it is not known."""
        broker = self.brokers.get(node_id)
        return None if broker is None else Address(broker.host, broker.port)

    def topic(self, name: str, now_s: float) -> TopicView | None:
        """Return the topic's metadata; None if it is missing or expired."""
        cached = self._topics.get(name)
        return None if cached is None or now_s > cached.until_s else cached.view

    def forget(self, name: str) -> None:
        """Expire the topic's metadata, because it has proved wrong; the next lookup requests it again."""
        cached = self._topics.get(name)
        if cached is not None:
            self._topics[name] = cached._replace(until_s=-inf)

    def partition(self, where: TopicPartition, now_s: float) -> PartitionView | None:
        """Return the partition's description; None if its topic is not cached, or has no such partition."""
        view = self.topic(where.topic, now_s)
        return None if view is None else view.partition(where.partition)

    def leader_epoch(self, where: TopicPartition, now_s: float) -> int:
        """Return the epoch of the partition's leader; NO_LEADER_EPOCH if it is not cached."""
        found = self.partition(where, now_s)
        return NO_LEADER_EPOCH if found is None else found.leader_epoch

    def leader_in(self, view: TopicView, partition: int) -> PartitionLeader:
        """Return the partition's leader in the topic's metadata; forgets the topic if there is none."""
        found = view.partition(partition)
        if found is None:
            self.forget(view.name)
            text = f"topic {view.name!r} has no partition {partition}; it has 0 to {len(view.partitions) - 1}"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        leader = self._leader(found.leader_id, epoch=found.leader_epoch)
        if leader is None:
            self.forget(view.name)
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE.number, f"{view.name}-{partition}")
        return leader

    def leader_failed(self, where: TopicPartition, asked: str, error: MillstreamError) -> PartitionLeader | None:
        """Apply the failure of a request to the broker `asked`; returns the leader that its refusal names, if any.

        A named leader replaces an older one in the cache, so that further requests go there without a metadata
        request. Otherwise the topic is forgotten.
        """
        leader = self._named_leader(where, asked, error) if isinstance(error, NotLeaderError) else None
        if leader is None:
            self.forget(where.topic)
        return leader

    def _named_leader(self, where: TopicPartition, asked: str, error: NotLeaderError) -> PartitionLeader | None:
        if error.broker is not None:
            self.brokers[error.leader_id] = error.broker
        leader, cached = self._leader(error.leader_id, epoch=error.leader_epoch), self._topics.get(where.topic)
        row = None if cached is None else cached.view.partition(where.partition)
        if leader is None or cached is None or row is None:
            self.forget(where.topic)
        elif error.leader_epoch > row.leader_epoch:
            self._topics[where.topic] = cached._replace(view=_led_by(cached.view, row, error))
        elif error.leader_epoch < row.leader_epoch or error.leader_id != row.leader_id:
            return None  # The refusing broker lags behind, or two brokers name each other.
        elif str(leader.address) == asked:
            self.forget(where.topic)  # It refuses but names itself, so request the metadata again.
        return leader

    def _leader(self, node_id: int, *, epoch: int) -> PartitionLeader | None:
        """Return the leader with this broker id; None if the address is not known."""
        address = self.address(node_id)
        return None if address is None else PartitionLeader(address, epoch)


def _newer(row: PartitionView, known: PartitionView | None) -> PartitionView:
    if known is None or not NO_LEADER_EPOCH < row.leader_epoch < known.leader_epoch:
        return row
    return row._replace(leader_id=known.leader_id, leader_epoch=known.leader_epoch)


def _led_by(view: TopicView, row: PartitionView, error: NotLeaderError) -> TopicView:
    """Return the topic's metadata with the leader that a refusal names for this partition."""
    assert error.leader_epoch > row.leader_epoch, "a leader epoch never decreases"
    led, at = row._replace(leader_id=error.leader_id, leader_epoch=error.leader_epoch), row.number
    if not (at < len(view.partitions) and view.partitions[at] is row):
        at = view.partitions.index(row)
    return view._replace(partitions=(*view.partitions[:at], led, *view.partitions[at + 1 :]))
