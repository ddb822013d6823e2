"""What handlers are handed: each names here the little of the world below that it uses."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.partition.partition import Partition
from millstream.wire.topic_ref import TopicRef


class BrokerIdentity(Struct):
    """This broker as clients reach it. The port is filled in once it is known."""

    node_id: int
    host: str
    port: int
    cluster_id: str


class PartitionLookup(Protocol):
    """Finds the partitions that this broker leads."""

    def get(self, topic: str, number: int) -> Partition | None: ...

    def get_by_id(self, topic_id: UUID, number: int) -> Partition | None: ...


class TopicPartitions(PartitionLookup, Protocol):
    """Finds them by topic, too."""

    def of(self, topic: str) -> Sequence[Partition]: ...


class TopicLookup(Protocol):
    """Finds the topics that can be used."""

    version: int
    """Another number whenever anything that Metadata tells has changed."""

    def topics(self) -> Sequence[Topic]: ...

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...

    def of(self, topic: str) -> Sequence[Partition]: ...


class AutoCreate(Protocol):
    """Gives the topic of a name, made if there is none; raises the error that the client is to get."""

    async def ensure(self, name: str, partitions: int) -> Topic: ...


class TopicCreation(Protocol):
    @property
    def defaults(self) -> Mapping[str, str]:
        """Settings of topics that do not set them."""
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


class TopicDeletion(Protocol):
    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...

    async def delete(self, name: str) -> Topic: ...


def find_partition(partitions: PartitionLookup, topic: TopicRef, number: int) -> Partition:
    """The partition that a request names; otherwise the error that says what is wrong with the name."""
    if isinstance(topic, str):
        partition = partitions.get(topic, number)
        if partition is None:
            check_topic_name(topic)
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {number} of {topic!r}")
    else:
        partition = partitions.get_by_id(topic, number)
        if partition is None:
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no partition {number} of the topic {topic}")
    return partition
