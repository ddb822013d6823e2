"""Defines the results of administrative requests as plain values: settings, sizes, topics, the cluster."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.responses import TopicView


class ResourceKind(Enum):
    """A kind of resource that has settings. The values are the protocol's resource types."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32

    @classmethod
    def named(cls, kind: "ResourceKind | str") -> "ResourceKind":
        """Convert "topic", "broker" or "group" to a kind; raises INVALID_SETTING for other values."""
        if isinstance(kind, cls):
            return kind
        found = next((each for each in cls if each.name.lower() == kind), None)
        if found is None:
            text = f"{kind!r} has no settings; expected 'topic', 'broker' or 'group'"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        return found


SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "start",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}
"""The origin of a setting's value, by its number in the protocol.

"cluster" is set for all brokers, "start" was given at the start of the broker, "default" is built in. The others are
set on the resource itself.
"""

TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


class ConfigSetting(NamedTuple):
    """One setting of a resource. `value` is None if it is unset or secret.

    `is_own` is true if the value was set on the resource itself, where it can be unset.
    """

    name: str
    value: str | None
    type: str
    source: str
    is_own: bool
    is_read_only: bool
    is_secret: bool
    documentation: str


class LogDirectory(NamedTuple):
    """A broker's data directory, with the size of each partition in it. Disk sizes are -1 if they are unknown."""

    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partition_bytes: Mapping[TopicPartition, int]


class ClusterDescription(NamedTuple):
    """The cluster id, the number of the controller and the brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerEndpoint, ...]


class TopicCursor(NamedTuple):
    """The position at which a listing of topics continues."""

    topic: str
    partition: int


class TopicRows(NamedTuple):
    """A part of a listing of topics, sorted by name. The last topic may continue in the next part."""

    topics: tuple[TopicView, ...]
    cursor: TopicCursor | None


class TopicPage(NamedTuple):
    """A page of topics, sorted by name. Pass `after` to request the next page; None after the last page."""

    topics: tuple[TopicView, ...]
    after: str | None


class QueryResult(NamedTuple):
    """The rows of a catalog query. `is_truncated` is true if there were more rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_truncated: bool
