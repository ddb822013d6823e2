"""Parameters that many operations have: which cluster, topic, group or broker is meant, and which page of a list."""

from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.operations.clusters import DEFAULT

ClusterName = Annotated[str, Meta(min_length=1, max_length=64, description="One of the clusters that are served here.")]
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="The topic's name.")]
GroupName = Annotated[str, Meta(min_length=1, max_length=8191, description="The group's name.")]
ConsumerName = Annotated[str, Meta(min_length=1, max_length=8191, description="Who reads, in the group.")]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1, description="The partition's number.")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


class Name(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class ClusterParameters(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    cluster: ClusterName = DEFAULT


class TopicParameters(ClusterParameters, kw_only=True):
    topic: TopicName


class GroupParameters(ClusterParameters, kw_only=True):
    group: GroupName


class ConsumerParameters(GroupParameters, kw_only=True):
    consumer: ConsumerName


class BrokerParameters(ClusterParameters, kw_only=True):
    broker: Annotated[int, Meta(ge=0, le=2**31 - 1, description="The broker's number.")]


class PageParameters(ClusterParameters, kw_only=True):
    """Which part of a list is wanted."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="Most rows of one answer.")] = 100
    after: Annotated[str, Meta(description="The `after` of the answer before; the first page without it.")] | None = (
        None
    )


class TopicsParameters(ClusterParameters, kw_only=True):
    topics: Annotated[str, Meta(description="Names, divided by commas; all without it.")] | None = None

    @property
    def names(self) -> list[str] | None:
        return None if self.topics is None else [name for name in self.topics.split(",") if name]
