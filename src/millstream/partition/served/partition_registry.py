"""Finds the replicas on this broker and the partitions that it leads.

The cluster image lists all topics and partitions. The registry has the partitions with a replica on this broker, which
may be only some of a topic's partitions. The broker leads some of these and follows others.

Invariants: a partition is found both by its topic's name and by its topic's id, or by neither. This broker has a
replica of each partition that it leads.
"""

from collections.abc import Callable, Iterable, Sequence

from millstream.catalog.catalog import Placement, Topic
from millstream.catalog.cluster_image import ClusterImage
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.model.ids import TopicId
from millstream.model.names import PartitionKey
from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica


class PartitionRegistry:
    """The replicas and leaderships of this broker. `cluster` provides the cluster image."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self.cluster = cluster
        self._by_name: dict[str, dict[int, Leadership]] = {}
        self._by_id: dict[TopicId, dict[int, Leadership]] = {}
        self._replicas: dict[PartitionKey, Replica] = {}

    @property
    def image(self) -> ClusterImage:
        """The current cluster image."""
        return self.cluster.image

    def get(self, topic: str, number: int) -> Leadership | None:
        served = self._by_name.get(topic)
        return served.get(number) if served is not None else None

    def get_by_id(self, topic_id: TopicId, number: int) -> Leadership | None:
        served = self._by_id.get(topic_id)
        return served.get(number) if served is not None else None

    def of(self, topic: str) -> Sequence[Leadership]:
        """Return the partitions of a topic that this broker leads, by number."""
        return tuple(self._by_name.get(topic, {}).values())

    def all(self) -> list[Leadership]:
        """Return the partitions that this broker leads."""
        return [partition for served in self._by_name.values() for partition in served.values()]

    def replicas(self) -> list[Replica]:
        """Return all replicas on this broker."""
        return list(self._replicas.values())

    def replicas_of(self, topic_id: TopicId, numbers: Iterable[int]) -> list[Replica]:
        """Return the replicas on this broker of the given partitions of a topic."""
        keys = (PartitionKey(topic_id, number) for number in numbers)
        return [replica for key in keys if (replica := self._replicas.get(key)) is not None]

    @property
    def count(self) -> int:
        """Number of replicas on this broker."""
        return len(self._replicas)

    def _hold(self, replica: Replica) -> None:
        """Add a replica."""
        assert replica.key not in self._replicas, "a broker has one replica of a partition"
        self._replicas[replica.key] = replica

    def _lead(self, partition: Leadership) -> None:
        """Add a leadership. Those of a topic stay in the order of their numbers."""
        assert self._replicas.get(partition.key) is partition.replica, "a broker leads only partitions that it holds"
        served = self._by_name.setdefault(partition.topic, {})
        by_id = self._by_id.setdefault(partition.key.topic_id, served)
        assert by_id is served, "name and id belong to the same topic"
        assert partition.number not in served, "a partition is served once"
        is_last = not served or next(reversed(served)) < partition.number
        served[partition.number] = partition
        if not is_last:
            for number in [number for number in served if number > partition.number]:
                served[number] = served.pop(number)

    def _apply(self, placement: Placement, lead: Callable[[Replica, Placement], Leadership]) -> None:
        """Apply a changed placement to the leadership of a partition, and publish it; `lead` begins a leadership."""
        known, partition = self.image.placement(*placement.key), self.get_by_id(*placement.key)
        before = known if partition is None else partition.placement
        if before is None or placement.partition_epoch <= before.partition_epoch:
            return
        is_led = placement.leader == self.cluster.node_id
        if partition is not None and is_led and partition.continues_under(placement):
            partition.placement_changed(placement)
            ended = None
        else:
            ended = partition
            if ended is not None:
                self._remove(ended)
            for replica in self.replicas_of(placement.key.topic_id, (placement.key.partition,)) if is_led else ():
                self._lead(lead(replica, placement))
        if known is not None and placement.partition_epoch > known.partition_epoch:
            self.cluster.publish(self.image.placements_changed([placement]))
        if ended is not None:
            ended.resigned()  # The responses to the waiting writers find the new leader in the image.

    def _resign(self, partition: Leadership) -> None:
        """End the leadership of a partition. Its replica stays."""
        self._remove(partition)
        partition.resigned()

    def _remove(self, partition: Leadership) -> None:
        """Remove a leadership. Its replica can then assume another role."""
        partition.replica.release(partition)
        del self._by_name[partition.topic][partition.number]

    def _take_out(self, topic: Topic) -> Sequence[Leadership]:
        """Remove the replicas of a topic and return the leaderships that it had."""
        taken = self.of(topic.name)
        self._by_id.pop(topic.topic_id, None)
        self._by_name.pop(topic.name, None)
        for replica in self.replicas_of(topic.topic_id, range(topic.partitions)):
            del self._replicas[replica.key]
            replica.forget()
        return taken
