"""Topics: made, listed, described, changed and deleted."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import invalid
from millstream.gateway.http.resources.common_parameters import ClusterName, PageParameters, Partition, TopicParameters
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import topics
from millstream.gateway.operations.clusters import DEFAULT
from millstream.gateway.operations.reads import BEGINNING, LATEST, TopicReader, parse_time_ms, place_text
from millstream.sdk.admin.topic_sizes import PartitionSize

Settings = Annotated[dict[str, str], Meta(description="The topic's own settings, by name.")]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A topic that is to be made. What is not said is left to the broker."""

    name: Annotated[str, Meta(description="Letters, digits, '.', '_' and '-'; at most 249.")]
    cluster: ClusterName = DEFAULT
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=2**15 - 1)] | None = None
    settings: Settings = msgspec.field(default_factory=dict)

    @property
    def topic(self) -> str:
        return self.name


class CreatedTopic(msgspec.Struct, kw_only=True):
    name: str
    cluster: str
    id: str


class PartitionInfo(msgspec.Struct, kw_only=True):
    """Offsets are None where the partition is quarantined, sizes where nobody tells."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    first_offset: int | None
    next_offset: int | None
    bytes: int | None


class ListedTopic(msgspec.Struct, kw_only=True):
    name: str
    id: str
    internal: bool
    partitions: int
    messages: int | None
    bytes: int | None


class ListedTopics(msgspec.Struct, kw_only=True):
    """In the order of their names; give `after` to have those that follow. It is null at the end."""

    topics: list[ListedTopic]
    after: str | None


class TopicBody(msgspec.Struct, kw_only=True):
    name: str
    id: str
    internal: bool
    partitions: list[PartitionInfo]
    settings: dict[str, str | None]
    """Those that are its own."""


class MorePartitions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    total: Annotated[int, Meta(ge=1, le=10_000, description="How many it shall have.")]
    validate_only: bool = False


class OffsetQuery(TopicParameters, kw_only=True):
    """Which places are wanted."""

    at: Annotated[
        str | int,
        Meta(description="`beginning`, `latest`, or a time: `2025-01-31T12:00:00Z`, milliseconds, or `10m` ago."),
    ] = "latest"
    partition: Partition | None = None


class TopicOffsets(msgspec.Struct, kw_only=True):
    """`offset` has them in one text, as `GET /events` takes it."""

    topic: str
    offset: str
    partitions: dict[str, int]


class DeleteRecordsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Up to where messages go: the first offset that stays, by partition; -1 for all that are there now."""

    before: Annotated[dict[str, Annotated[int, Meta(ge=-1, le=2**63 - 1)]], Meta(min_length=1, max_length=10_000)]


class LogStartOffsets(msgspec.Struct, kw_only=True):
    """Where each partition begins now."""

    topic: str
    first_offsets: dict[str, int]


async def create_topic(asked: WebRequest) -> CreatedTopic:
    """TOPIC_ALREADY_EXISTS where it is there, and an error that names the field where it cannot be."""
    new: NewTopic = asked.body
    cluster = asked.site.clusters.get(new.cluster)
    made = await topics.create_topic(
        cluster,
        new.name,
        cluster.timeout_s,
        partitions=topics.BROKERS_CHOICE if new.partitions is None else new.partitions,
        replication_factor=topics.BROKERS_CHOICE if new.replication_factor is None else new.replication_factor,
        settings=new.settings,
    )
    return CreatedTopic(name=new.name, cluster=cluster.name, id=str(made))


async def list_topics(asked: WebRequest) -> ListedTopics:
    """A page of them, in the order of their names."""
    parameters: PageParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    found = await topics.list_topics(cluster, parameters.limit, parameters.after, cluster.timeout_s)
    rows = [
        ListedTopic(
            name=row.view.name,
            id=str(row.view.topic_id),
            internal=row.view.is_internal,
            partitions=len(row.view.partitions),
            messages=row.messages,
            bytes=row.size_bytes,
        )
        for row in found.rows
    ]
    return ListedTopics(topics=rows, after=found.after)


async def describe_topic(asked: WebRequest) -> TopicBody:
    """Its partitions with their offsets and sizes, and its own settings."""
    parameters: TopicParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    view, partitions = await topics.describe_topic(cluster, parameters.topic, cluster.timeout_s)
    settings = await topics.topic_settings(cluster, parameters.topic, (), cluster.timeout_s)
    return TopicBody(
        name=view.name,
        id=str(view.topic_id),
        internal=view.is_internal,
        partitions=[_shown(row) for row in partitions],
        settings={each.name: each.value for each in settings if each.is_own},
    )


def _shown(row: PartitionSize) -> PartitionInfo:
    return PartitionInfo(
        partition=row.view.number,
        leader=row.view.leader_id,
        leader_epoch=row.view.leader_epoch,
        replicas=row.view.replicas,
        in_sync=row.view.in_sync,
        first_offset=None if row.extent is None else row.extent.first,
        next_offset=None if row.extent is None else row.extent.next,
        bytes=row.size_bytes,
    )


async def delete_topic(asked: WebRequest) -> None:
    """With all its messages."""
    parameters: TopicParameters = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    await topics.delete_topic(cluster, parameters.topic, cluster.timeout_s)


async def add_partitions(asked: WebRequest) -> TopicBody:
    """INVALID_PARTITIONS unless those are more than it has."""
    parameters: TopicParameters = asked.parameters
    more: MorePartitions = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    await topics.add_partitions(
        cluster, parameters.topic, more.total, cluster.timeout_s, validate_only=more.validate_only
    )
    return await describe_topic(asked)


async def get_offsets(asked: WebRequest) -> TopicOffsets:
    """Where partitions begin or end, or where their first message at or after a time is."""
    parameters: OffsetQuery = asked.parameters
    reader = await TopicReader.open(asked.site.clusters.get(parameters.cluster), parameters.topic)
    if parameters.at in (BEGINNING, LATEST):
        positions = await reader.begin(str(parameters.at), parameters.partition)
    else:
        time_ms = parse_time_ms(str(parameters.at), asked.site.clock.wall_ms(), "at")
        positions = await reader.begin_at(time_ms, parameters.partition)
    return TopicOffsets(
        topic=parameters.topic,
        offset=place_text(positions, alone=parameters.partition is not None),
        partitions={str(partition): offset for partition, offset in sorted(positions.items())},
    )


async def delete_messages(asked: WebRequest) -> LogStartOffsets:
    """Remove a topic's oldest messages for good."""
    parameters: TopicParameters = asked.parameters
    removal: DeleteRecordsBody = asked.body
    cluster = asked.site.clusters.get(parameters.cluster)
    places: dict[int, int] = {}
    for text, offset in removal.before.items():
        if not (text.isascii() and text.isdigit() and int(text) < 2**31):
            raise invalid("before", f"{text[:20]!r} is no partition's number")
        places[int(text)] = offset
    found = await topics.delete_messages(cluster, parameters.topic, places, cluster.timeout_s)
    return LogStartOffsets(
        topic=parameters.topic, first_offsets={str(number): offset for number, offset in found.items()}
    )
