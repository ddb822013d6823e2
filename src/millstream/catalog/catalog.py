r"""Defines the catalog's interface: the facts that need agreement, behind calls that a database can execute atomically.

Each call is one transaction: it is applied completely or not at all, and its result survives a crash. Produce and fetch
requests never use the catalog. Brokers read it at start, write it when something changes, and serve from memory.

A topic goes through three states, so that a crash between the writes to catalog and logs is not mistaken for lost data:

    creating --set_ready--> ready --delete_topic--> deleting --forget_topic--> (removed)
        \________________________delete_topic________/

- `creating`: some of the logs may not exist yet.
- `ready`: all logs must exist.
- `deleting`: clients no longer see the topic, its name is free again, and its remaining logs are to be removed.

A ready topic gets more partitions in similar steps, but without a state of its own. `begin_growth` writes the rows of
the new partitions, numbered from the topic's partition count. As long as the count excludes them, their logs may not
exist yet, and no broker serves them. `finish_growth` raises the count; `abandon_growth` removes the rows.
"""

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from millstream.catalog.projection import GroupTables
from millstream.catalog.statement import QueryResult
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, ProducerId, TopicId
from millstream.model.names import PartitionKey
from millstream.seams.entropy import Entropy, random_uuid

SECRET_BYTES = 32
MakeRoom = Callable[[], Awaitable[bool]]
"""Frees disk space that is reserved for a full disk. Returns False if it freed none."""


async def no_room() -> bool:
    return False


class TopicState(StrEnum):
    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


class Topic(Struct, frozen=True):
    """The definition of a topic. `settings` contains only explicit settings; all others have the broker's defaults.

    `partitions` is the number of partitions that clients see. While partitions are being added, `growing_to` is the
    future number; otherwise it is 0.
    """

    name: str
    topic_id: TopicId
    partitions: int
    settings: Mapping[str, str]
    state: TopicState = TopicState.READY
    created_ms: int = 0
    growing_to: int = 0


class Placement(NamedTuple):
    """The replicas of a partition. `partition_epoch` counts all changes of this row, `leader_epoch` the changes of
    leadership."""

    key: PartitionKey
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


class BrokerEntry(NamedTuple):
    """A registered broker; `incarnation` counts its starts."""

    node_id: BrokerId
    host: str
    port: int
    incarnation: int
    registered_ms: int


class Catalog(Protocol):
    """The facts of one cluster.

    Every call raises KAFKA_STORAGE_ERROR if the catalog is unavailable. Such a call changes nothing, unless the commit
    itself failed. After a failed commit, the next `open` shows whether the change was made.
    """

    kind: str
    """Name of the implementation, such as `sqlite`."""

    async def open(self, make_room: MakeRoom = no_room) -> None:
        """Opens the catalog. A change that fails because the disk is full is repeated after `make_room`.

        Raises DATA_DIRECTORY_IN_USE if another process owns it, CATALOG_REFUSED if this version cannot use it.
        """
        ...

    async def close(self) -> None: ...

    async def cluster_id(self) -> str:
        """Returns the id of the cluster, which is created once and never changes."""
        ...

    async def register_broker(self, node_id: BrokerId, host: str, port: int) -> BrokerEntry: ...

    async def brokers(self) -> list[BrokerEntry]: ...

    async def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str], replicas: Sequence[Sequence[BrokerId]]
    ) -> Topic:
        """Creates a topic in state `creating`. `replicas` has one list of node ids per partition; the first node leads.

        Raises TOPIC_ALREADY_EXISTS if a topic of this name exists that is not being deleted.
        """
        ...

    async def set_ready(self, topic_id: TopicId) -> None:
        """Marks a topic as ready after its logs have been created. Raises UNKNOWN_TOPIC_ID unless it was `creating` or
        `ready`."""
        ...

    async def delete_topic(self, topic_id: TopicId) -> None:
        """Starts the deletion of a topic, which no longer exists for clients from now on. Raises UNKNOWN_TOPIC_ID if it
        is unknown or already being deleted."""
        ...

    async def forget_topic(self, topic_id: TopicId) -> None:
        """Removes the rows of a topic that was being deleted, after its logs are removed. Has no effect on other
        topics."""
        ...

    async def change_settings(self, topic_id: TopicId, settings: Mapping[str, str]) -> None:
        """Replaces all settings of a ready topic. Raises UNKNOWN_TOPIC_ID if there is no ready topic with this id."""
        ...

    async def begin_growth(self, topic_id: TopicId, replicas: Sequence[Sequence[BrokerId]]) -> None:
        """Stores new partitions of a ready topic, with one list of node ids each. Replaces new partitions of an earlier
        growth that was not finished. Raises UNKNOWN_TOPIC_ID if there is no ready topic with this id."""
        ...

    async def finish_growth(self, topic_id: TopicId) -> None:
        """Adds the new partitions to the topic after their logs have been created. Raises UNKNOWN_TOPIC_ID like
        `begin_growth`."""
        ...

    async def abandon_growth(self, topic_id: TopicId) -> None:
        """Removes the new partitions of a growth that was not finished.

        These partitions must not have logs. Raises UNKNOWN_TOPIC_ID like `begin_growth`.
        """
        ...

    async def topics(self) -> list[Topic]:
        """Returns all topics in all states, in the order of their creation."""
        ...

    async def placements(self) -> list[Placement]:
        """Returns the placements of all partitions, ordered by topic and number."""
        ...

    async def begin_leadership(self, node_id: BrokerId, *, without: Collection[PartitionKey] = ()) -> list[Placement]:
        """Starts a new leader epoch for every partition that `node_id` leads, except `without`, in one transaction.
        Returns the new placements."""
        ...

    async def change_placement(self, changed: Placement) -> Placement | None:
        """Stores `changed` if the row still has `changed.partition_epoch` (compare and set). Returns the stored
        placement with the next partition epoch, or None if the row was changed meanwhile or no longer exists. Raises
        FENCED_LEADER_EPOCH if the leader epoch would decrease."""
        ...

    async def next_producer_ids(self, count: int, node_id: BrokerId) -> range:
        """Returns `count` producer ids that have never been issued, and will never be issued again."""
        ...

    async def bind_producer(self, producer_id: ProducerId, producer_group: str, node_id: BrokerId) -> None:
        """Permanently assigns an id that was just issued to this producer group."""
        ...

    async def trim_producers(self, keep: int) -> None:
        """Removes all but the newest `keep` ids that are assigned to producer groups."""
        ...

    async def secret(self, name: str) -> bytes:
        """Returns `SECRET_BYTES` random bytes that all brokers of the cluster share under this name. They are created
        on first use and never change."""
        ...

    async def group_settings(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the settings of all groups that have settings of their own, by group id."""
        ...

    async def change_group_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Replaces all settings of a group."""
        ...

    @property
    def group_tables(self) -> GroupTables:
        """The tables of groups and committed offsets, which follow the internal topic."""
        ...

    async def query(self, sql: str, *, rows_max: int, timeout_ms: int) -> QueryResult:
        """Returns the result of a query over the tables, within the catalog's own limits. Raises INVALID_REQUEST if the
        query is invalid or does more than read, REQUEST_TIMED_OUT if it takes too long."""
        ...


def new_cluster_id(entropy: Entropy) -> str:
    """Returns a new cluster id, a random UUID in URL-safe base64 as in Kafka."""
    return urlsafe_b64encode(random_uuid(entropy).bytes).rstrip(b"=").decode()


def first_placement(key: PartitionKey, nodes: Sequence[BrokerId]) -> Placement:
    """Returns the placement of a new partition: the first node leads, and all nodes are in sync, because there is no
    data yet."""
    return Placement(key, nodes[0], LeaderEpoch(0), 0, tuple(nodes), tuple(nodes))


def placements_from(topic_id: TopicId, first: int, replicas: Sequence[Sequence[BrokerId]]) -> list[Placement]:
    """Returns the placements of new partitions of a topic, numbered from `first`."""
    return [first_placement(PartitionKey(topic_id, number), nodes) for number, nodes in enumerate(replicas, first)]


def unknown_topic(topic_id: TopicId) -> MillstreamError:
    return MillstreamError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic_id} does not exist")


def check_new_topic(name: str, partitions: int, replicas: Sequence[Sequence[BrokerId]]) -> None:
    """Checks the partitions and replicas of a new topic, for all implementations of the catalog."""
    if partitions < 1 or len(replicas) != partitions:
        raise MillstreamError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r}: needs at least 1 partition and one replica list for each, "
            f"not {partitions} partitions with {len(replicas)} replica lists",
        )
    check_replicas(name, replicas)


def check_replicas(topic: str, replicas: Sequence[Sequence[BrokerId]]) -> None:
    """Checks the replicas of new partitions: each has at least one, and no node twice."""
    for number, nodes in enumerate(replicas):
        if not nodes or len(set(nodes)) != len(nodes):
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {topic!r}: partition {number} needs replicas on one or more different nodes, not {list(nodes)}",
            )


def check_change(current: Placement, changed: Placement) -> None:
    """Checks a changed placement: the leader epoch must not decrease, and the leader must be in sync."""
    if changed.leader_epoch < current.leader_epoch:
        raise MillstreamError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"partition {changed.key.partition} of {changed.key.topic_id} has leader epoch {current.leader_epoch}, "
            f"which cannot decrease to {changed.leader_epoch}",
        )
    if changed.leader not in changed.in_sync or not set(changed.in_sync) <= set(changed.replicas):
        raise MillstreamError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"leader {changed.leader} must be among the in-sync replicas {list(changed.in_sync)}, "
            f"and these among the replicas {list(changed.replicas)}",
        )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def readable_time(wall_ms: int) -> str:
    """Formats a time for the tables. The text sorts like the time itself."""
    return f"{(_EPOCH + wall_ms * _MILLISECOND).replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}Z"


def time_ms(readable: str) -> int:
    """Parses a time that `readable_time` has formatted."""
    return (datetime.fromisoformat(readable) - _EPOCH) // _MILLISECOND
