"""Defines the parameters that many operations share: cluster, topic, group, consumer, broker and page."""

from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import contradictory
from millstream.gateway.operations.clusters import DEFAULT

ClusterName = Annotated[str, Meta(min_length=1, max_length=64, description="A cluster that this gateway serves.")]
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Topic name.")]
GroupName = Annotated[str, Meta(min_length=1, max_length=8191, description="Group name.")]
ConsumerName = Annotated[str, Meta(min_length=1, max_length=8191, description="Name of the consumer in its group.")]
START_WORDS_TEXT = "`beginning` (or `earliest`), `latest` (or `end`)"
"""The start words, for descriptions of parameters."""

Partition = Annotated[int, Meta(ge=0, le=2**31 - 1, description="Partition number.")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


CONSUMER_NAMES = "set `group` and `consumer`, or `consumer_id`"


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Accepts no parameters."""


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


class ConsumerNames(msgspec.Struct, kw_only=True):
    """Names a group and a consumer in it. `consumer_id` without a group selects a group of its own."""

    group: GroupName | None = None
    consumer: ConsumerName | None = None
    consumer_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=8_000)] | int | None,
        Meta(
            description="Another name of `consumer`, a text or a number. Without `group` the group is `consumer-<id>`."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.consumer_id is not None and chosen_name(self, "consumer", "consumer_id") == "consumer_id":
            self.consumer = str(self.consumer_id)
            self.group = self.group or f"consumer-{self.consumer}"


class BrokerParameters(ClusterParameters, kw_only=True):
    broker: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Broker number (node id).")]


class PageParameters(ClusterParameters, kw_only=True):
    """Selects a page of a list."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="Most rows of the page.")] = 100
    after: Annotated[str, Meta(description="The `after` of the previous page. Default: the first page.")] | None = None


class TopicsParameters(ClusterParameters, kw_only=True):
    topics: Annotated[str, Meta(description="Topic names, separated by commas. Default: all topics.")] | None = None

    @property
    def names(self) -> list[str] | None:
        return None if self.topics is None else [name for name in self.topics.split(",") if name]


def chosen_name(given: msgspec.Struct, name: str, other: str) -> str:
    """Return the one of a field's two names that the request uses. Raises INVALID_REQUEST if it sets both."""
    if getattr(given, other) is None:
        return name
    if getattr(given, name) is None:
        return other
    raise contradictory(other, f"`{name}` and `{other}` are two names of one field; set only one of them")
