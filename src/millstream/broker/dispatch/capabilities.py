"""Defines the narrow interfaces through which handlers reach partitions, topics and the cluster."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from millstream.catalog.catalog import Placement, Topic
from millstream.catalog.cluster_image import ClusterImage
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, TopicId
from millstream.model.names import check_topic_name
from millstream.partition.leadership import Leadership
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.puts import BY_HASH
from millstream.wire.topic_ref import TopicRef


class ImageSource(Protocol):
    """Provides the current cluster image: all brokers, topics and placements of the cluster."""

    @property
    def image(self) -> ClusterImage: ...


class ClusterNode(ImageSource, Protocol):
    """Provides the id of this broker."""

    @property
    def node_id(self) -> BrokerId: ...


class PartitionLookup(ImageSource, Protocol):
    """Finds the partitions that this broker leads."""

    def get(self, topic: str, number: int) -> Leadership | None: ...

    def get_by_id(self, topic_id: TopicId, number: int) -> Leadership | None: ...


class AutoCreate(Protocol):
    """Returns a topic by name and creates it if it does not exist. Raises the error that the client receives."""

    async def ensure(self, name: str, partitions: int) -> Topic: ...


class TopicCreation(Protocol):
    @property
    def defaults(self) -> Mapping[str, str]:
        """The broker's defaults for settings that a topic does not set."""
        ...

    async def create(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str | None],
        *,
        replication_factor: int,
        validate_only: bool,
    ) -> Topic: ...


class TopicDeletion(ImageSource, Protocol):
    async def delete(self, name: str) -> Topic: ...


_NAME_THE_LEADER = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class LedElsewhereError(MillstreamError):
    """NOT_LEADER_OR_FOLLOWER, with the current leader of the partition."""

    def __init__(self, image: ClusterImage, topic: TopicRef, placement: Placement) -> None:
        partition = f"partition {placement.key.partition} of {topic}"
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader of {partition} is broker {placement.leader}")
        self.leader = leader_of(image, placement)


def leader_of(image: ClusterImage, placement: Placement) -> CurrentLeader:
    """Return the leader of a partition in the form of responses."""
    return CurrentLeader(placement.leader, placement.leader_epoch, image.brokers.get(placement.leader))


def current_leader(image: ClusterImage, topic: TopicRef, number: int) -> CurrentLeader | None:
    """Return the leader that the image has for a partition; None for an unknown partition."""
    placement = image.placement(topic, number)
    return leader_of(image, placement) if placement is not None else None


def leader_for(error: MillstreamError, image: ClusterImage, topic: TopicRef, number: int) -> CurrentLeader | None:
    """Return the leader that a refusal names, or None if the client need not ask another leader."""
    return current_leader(image, topic, number) if error.code in _NAME_THE_LEADER else None


def find_partition(partitions: PartitionLookup, topic: TopicRef, number: int, access: Access) -> Leadership:
    """Return the partition of this broker that a request names.

    Raises TOPIC_AUTHORIZATION_FAILED if the request may not use the topic, NOT_LEADER_OR_FOLLOWER if another broker
    leads the partition, and otherwise the error that explains what is wrong with the name. The right on a topic name
    is checked first, so that an unauthorized client cannot find out which topics exist.
    """
    if isinstance(topic, str):
        if access.is_limited:
            access.check_topic(topic)
        partition = partitions.get(topic, number)
    else:
        partition = partitions.get_by_id(topic, number)
        if partition is not None and access.is_limited:
            access.check_topic(partition.topic, is_named=False)
    if partition is None:
        image = partitions.image
        raise LedElsewhereError(image, topic, find_placement(image, topic, number, access))
    return partition


def partition_by_hash(image: ClusterImage, topic: str, key_hash: int, access: Access) -> int:
    """Return the partition to which a hash assigns a message, or `BY_HASH` if the topic does not exist.

    Another broker may lead that partition. Raises TOPIC_AUTHORIZATION_FAILED if the request may not use the topic.
    """
    if access.is_limited:
        access.check_topic(topic)
    found = image.topic(topic)
    return key_hash % found.partitions if found is not None else BY_HASH


def bad_assignment(image: ClusterImage, what: str, replicas: Sequence[int]) -> MillstreamError:
    """Return INVALID_REPLICA_ASSIGNMENT for replicas that cannot be placed on these brokers."""
    assigned, nodes = f"{what} is assigned to {list(replicas)[:10]}", list(image.brokers)
    if len(nodes) == 1:
        why = f"the only broker is {nodes[0]}"
    else:
        why = f"the brokers are {nodes[:10]}, and a replica stays on the broker that created it"
    return MillstreamError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{assigned}; {why}")


def find_placement(image: ClusterImage, topic: TopicRef, number: int, access: Access) -> Placement:
    """Return the placement of the requested partition, whichever broker leads it.

    Raises the errors of `find_partition`, except NOT_LEADER_OR_FOLLOWER.
    """
    if isinstance(topic, str):
        access.check_topic(topic)
    placement = image.placement(topic, number)
    if placement is None:
        if not isinstance(topic, str):
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic} has no partition {number}")
        check_topic_name(topic)
        raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {number}")
    if not isinstance(topic, str) and (found := image.topic_by_id(topic)) is not None:
        access.check_topic(found.name, is_named=False)
    return placement
