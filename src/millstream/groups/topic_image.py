"""Defines the view of topics that groups use."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from millstream.model.ids import TopicIdBytes


class TopicInfo(NamedTuple):
    name: str
    topic_id: TopicIdBytes
    """The 16 bytes of the UUID."""
    partitions: int


class TopicImage(Protocol):
    """The topics that exist in the cluster, whether or not this broker serves any of their partitions.

    `version` rises whenever a topic is created, deleted or changed. It never decreases.
    """

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: TopicIdBytes) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]:
        """Returns the names of all topics that users can subscribe to, sorted."""
        ...
