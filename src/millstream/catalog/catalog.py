"""The catalog's seam: the few facts that need agreement, behind calls that a database can keep atomic.

Each call is one transaction: it happens whole or not at all, and what it returned survives a crash. The data path
never comes here; brokers read the catalog at start and write it when something changes, and serve from memory.

A topic goes through three states, so that a crash between the catalog and the logs can be told from lost data::

    creating --set_ready--> ready --delete_topic--> deleting --forget_topic--> (gone)
        \\________________________delete_topic________/

`creating`: the logs may not all exist yet. `ready`: they must exist. `deleting`: the topic is gone for everybody, its
name is free again, and what is left of its logs is to be removed.

A ready topic that is given more partitions goes through the same, without a state of its own: the rows of its new
partitions are written first (`begin_growth`), numbered from its count of partitions on. While the count does not cover
them their logs may not exist yet, and nobody serves them. `finish_growth` raises the count, `abandon_growth` takes the
rows away again.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from millstream.catalog.projection import GroupTables
from millstream.catalog.queries import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import PartitionKey
from millstream.seams.entropy import Entropy, random_uuid

SECRET_BYTES = 32


class TopicState(StrEnum):
    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


class Topic(Struct, frozen=True):
    """A topic as it was defined. `settings` holds only what was set; the rest follows the broker's defaults.

    `partitions` are those that clients see. While more are being added, `growing_to` is how many there will be, and
    otherwise 0.
    """

    name: str
    topic_id: UUID
    partitions: int
    settings: Mapping[str, str]
    state: TopicState = TopicState.READY
    created_ms: int = 0
    growing_to: int = 0


class Placement(NamedTuple):
    """Who holds a partition. `partition_epoch` counts every change of this row, `leader_epoch` those of leadership."""

    key: PartitionKey
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class BrokerEntry(NamedTuple):
    """A broker as it registered; `incarnation` counts its starts."""

    node_id: int
    host: str
    port: int
    incarnation: int
    registered_ms: int


class Catalog(Protocol):
    """Every call may raise KAFKA_STORAGE_ERROR when the catalog cannot be reached; then nothing was changed, unless
    the error came at the very commit, in which case the next `open` shows what is true."""

    kind: str
    """What keeps it, in a word."""

    async def open(self) -> None:
        """Make the catalog usable; DATA_DIRECTORY_IN_USE when somebody else owns it, CATALOG_REFUSED when it is not
        one that this version can use."""
        ...

    async def close(self) -> None: ...

    async def cluster_id(self) -> str:
        """The cluster's name for itself, made once and never changed."""
        ...

    async def register_broker(self, node_id: int, host: str, port: int) -> BrokerEntry: ...

    async def brokers(self) -> list[BrokerEntry]: ...

    async def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str], replicas: Sequence[Sequence[int]]
    ) -> Topic:
        """Define a topic in state `creating`; `replicas` has one list of node ids per partition, its first leads.

        TOPIC_ALREADY_EXISTS when one of this name is there that is not being deleted.
        """
        ...

    async def set_ready(self, topic_id: UUID) -> None:
        """The topic's logs exist. UNKNOWN_TOPIC_ID unless it was `creating` (or is `ready` already)."""
        ...

    async def delete_topic(self, topic_id: UUID) -> None:
        """Begin to delete: from here on the topic is gone. UNKNOWN_TOPIC_ID when it was already."""
        ...

    async def forget_topic(self, topic_id: UUID) -> None:
        """Nothing is left of a topic that was being deleted. Without effect on any other, or an unknown one."""
        ...

    async def change_settings(self, topic_id: UUID, settings: Mapping[str, str]) -> None:
        """Give a ready topic these settings in place of those it has. UNKNOWN_TOPIC_ID when there is none."""
        ...

    async def begin_growth(self, topic_id: UUID, replicas: Sequence[Sequence[int]]) -> None:
        """Note new partitions of a ready topic, one list of node ids for each, in place of any noted before that were
        not finished. UNKNOWN_TOPIC_ID when there is no ready topic of this id."""
        ...

    async def finish_growth(self, topic_id: UUID) -> None:
        """The logs of the new partitions exist: they count from here on. UNKNOWN_TOPIC_ID as for `begin_growth`."""
        ...

    async def abandon_growth(self, topic_id: UUID) -> None:
        """Forget partitions that were noted and not finished; there must be no logs of them. UNKNOWN_TOPIC_ID as for
        `begin_growth`."""
        ...

    async def topics(self) -> list[Topic]:
        """Every topic in every state, in the order of creation."""
        ...

    async def placements(self) -> list[Placement]:
        """Every partition, ordered by topic and number."""
        ...

    async def begin_leadership(self, node_id: int) -> list[Placement]:
        """Begin a new leader epoch for every partition that `node_id` leads, and give them: all in one step."""
        ...

    async def change_placement(self, changed: Placement) -> Placement | None:
        """Compare and set: store `changed` if the row is still at `changed.partition_epoch`, and give it as stored,
        with the next partition epoch. None when somebody else was first, or the partition is gone.
        A leader epoch that would go back is refused with FENCED_LEADER_EPOCH."""
        ...

    async def next_producer_ids(self, count: int, node_id: int) -> range:
        """`count` producer ids that nobody was given before, and nobody will be given again."""
        ...

    async def bind_producer(self, producer_id: int, producer_group: str, node_id: int) -> None:
        """Note for good that this id, which was given out just now, belongs to this producer group."""
        ...

    async def trim_producers(self, keep: int) -> None:
        """Of the ids that belong to producer groups, remember the newest, and no more than `keep`."""
        ...

    async def secret(self, name: str) -> bytes:
        """Random bytes, `SECRET_BYTES` of them, that all brokers of the cluster share under this name: made when first
        asked for, and never changed."""
        ...

    @property
    def group_tables(self) -> GroupTables:
        """The tables of groups and committed offsets, which follow the internal topic."""
        ...

    async def query(self, sql: str, rows_max: int, timeout_ms: int) -> QueryResult:
        """What a query over the tables finds, within the catalog's own limits. INVALID_REQUEST when it cannot be run
        or does more than read, REQUEST_TIMED_OUT when it takes too long."""
        ...


def new_cluster_id(entropy: Entropy) -> str:
    """A name for a new cluster: a random UUID in URL-safe base64, as Kafka writes its own."""
    return urlsafe_b64encode(random_uuid(entropy).bytes).rstrip(b"=").decode()


def first_placement(key: PartitionKey, nodes: Sequence[int]) -> Placement:
    """How a new partition begins: the first of its nodes leads, all are in sync, since there is nothing to copy."""
    return Placement(key, nodes[0], 0, 0, tuple(nodes), tuple(nodes))


def placements_from(topic_id: UUID, first: int, replicas: Sequence[Sequence[int]]) -> list[Placement]:
    """How new partitions of a topic begin, numbered from `first` on."""
    return [first_placement(PartitionKey(topic_id, number), nodes) for number, nodes in enumerate(replicas, first)]


def unknown_topic(topic_id: UUID) -> MillstreamError:
    return MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")


def check_new_topic(name: str, partitions: int, replicas: Sequence[Sequence[int]]) -> None:
    """What every catalog refuses, whatever keeps it: a topic whose parts do not fit together."""
    if partitions < 1 or len(replicas) != partitions:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r}: {partitions} partitions with {len(replicas)} replica lists",
        )
    check_replicas(name, replicas)


def check_replicas(topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """What every catalog refuses of new partitions: one without a replica, or with a node twice."""
    for number, nodes in enumerate(replicas):
        if not nodes or len(set(nodes)) != len(nodes):
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {topic!r}: partition {number} needs at least one replica and no node twice, not {list(nodes)}",
            )


def check_change(current: Placement, changed: Placement) -> None:
    """What every catalog refuses of a changed placement: leadership that goes back, a leader who holds no copy."""
    if changed.leader_epoch < current.leader_epoch:
        raise MillstreamError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"partition {changed.key.partition} of {changed.key.topic_id} is at leader epoch {current.leader_epoch}, "
            f"not {changed.leader_epoch}",
        )
    if changed.leader not in changed.in_sync or not set(changed.in_sync) <= set(changed.replicas):
        raise MillstreamError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"leader {changed.leader} must be in sync {list(changed.in_sync)}, "
            f"and those among the replicas {list(changed.replicas)}",
        )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def readable_time(wall_ms: int) -> str:
    """A time as people read it in the tables; sorts like the time itself."""
    return f"{(_EPOCH + wall_ms * _MILLISECOND).replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}Z"


def time_ms(readable: str) -> int:
    """The inverse of `readable_time`."""
    return (datetime.fromisoformat(readable) - _EPOCH) // _MILLISECOND
