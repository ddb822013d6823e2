"""Settings, sizes and the shape of the cluster, as plain values."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.responses import TopicView


class ResourceKind(Enum):
    """What has settings, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32

    @classmethod
    def named(cls, kind: "ResourceKind | str") -> "ResourceKind":
        """Of a topic, a broker or a group; INVALID_SETTING for anything else."""
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
"""Where a setting's value comes from: set on the thing itself, on all brokers (cluster), or given to the broker at its
start."""

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
    """One setting. `value` is None where it is unset or secret; `is_own` says that it was set on the resource itself,
    so that it can be unset there."""

    name: str
    value: str | None
    type: str
    source: str
    is_own: bool
    is_read_only: bool
    is_secret: bool
    documentation: str


class LogDirectory(NamedTuple):
    """A broker's data directory, with the bytes of each partition in it. Disk sizes are -1 where it does not tell."""

    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partition_bytes: Mapping[TopicPartition, int]


class BrokerEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerEndpoint, ...]


class TopicCursor(NamedTuple):
    """Where a broker's listing of topics goes on."""

    topic: str
    partition: int


class TopicRows(NamedTuple):
    """A part of the listing, in the order of names; the last topic may go on in the next part."""

    topics: tuple[TopicView, ...]
    cursor: TopicCursor | None


class TopicPage(NamedTuple):
    """Some topics in the order of their names. `after` asks for the next page; None when there is none."""

    topics: tuple[TopicView, ...]
    after: str | None


class QueryResult(NamedTuple):
    """Rows of a query over the catalog. `is_truncated` says that there were more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_truncated: bool
