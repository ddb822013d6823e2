"""Creates, lists, describes, changes and deletes topics over HTTP."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from millstream.gateway.failures import contradictory, invalid, invalid_position
from millstream.gateway.http.resources.common_parameters import (
    START_WORDS_TEXT,
    ClusterName,
    PageParameters,
    Partition,
    TopicParameters,
)
from millstream.gateway.http.web_request import WebRequest
from millstream.gateway.operations import topics
from millstream.gateway.operations.clusters import DEFAULT
from millstream.gateway.operations.reads import TopicReader, format_positions, parse_time_ms
from millstream.model.start_words import ACCEPTED_WORDS, LATEST, start_word
from millstream.sdk.admin.topic_sizes import PartitionSize

Settings = Annotated[
    dict[str, str | int | float | bool | list[str]],
    Meta(
        description="Settings of the topic, by name. Durations and sizes may have units: `7d`, `36h`, `1GiB`. "
        'A value may be a list: `["compact", "delete"]`.'
    ),
]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A topic to create. Unset fields use the broker's defaults."""

    name: Annotated[str, Meta(description="Topic name: letters, digits, '.', '_' and '-', at most 249.")]
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
    """A partition. Offsets are null if it is quarantined; `bytes` is null if its size is unknown."""

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
    """A page of topics, ordered by name. Send `after` to get the next page; it is null on the last one."""

    topics: list[ListedTopic]
    after: str | None


class TopicBody(msgspec.Struct, kw_only=True):
    name: str
    id: str
    internal: bool
    partitions: list[PartitionInfo]
    settings: dict[str, str | None]
    """The settings that were set on the topic itself."""


class MorePartitions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    total: Annotated[int, Meta(ge=1, le=10_000, description="New total number of partitions.")]
    validate_only: bool = False


class OffsetQuery(TopicParameters, kw_only=True):
    """Selects the offsets to find."""

    at: Annotated[
        str | int | None,
        Meta(description=f"{START_WORDS_TEXT}, or a time as in `time`. By default the end."),
    ] = None
    offset: Annotated[str | None, Meta(description=f"{START_WORDS_TEXT}. An alternative to `at`.")] = None
    time: Annotated[
        str | int | None,
        Meta(description="`2025-01-31T12:00:00Z`, milliseconds since 1970, or `10m` ago. An alternative to `at`."),
    ] = None
    partition: Partition | None = None

    def given(self) -> tuple[str, str]:
        """Return the name and value of the given parameter: `at`, `offset` or `time`; the default is `at=latest`.

        Raises INVALID_REQUEST for several of them.
        """
        values = {"at": self.at, "offset": self.offset, "time": self.time}
        given = [(name, str(value)) for name, value in values.items() if value is not None]
        if len(given) > 1:
            raise contradictory(given[1][0], f"set either {given[0][0]} or {given[1][0]}, not both")
        return given[0] if given else ("at", LATEST)


class TopicOffsets(msgspec.Struct, kw_only=True):
    """The offsets by partition. `offset` has all of them as one text for `GET /events`."""

    topic: str
    offset: str
    partitions: dict[str, int]


class DeleteRecordsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The first offset to keep, by partition; -1 deletes all current messages."""

    before: Annotated[dict[str, Annotated[int, Meta(ge=-1, le=2**63 - 1)]], Meta(min_length=1, max_length=10_000)]


class LogStartOffsets(msgspec.Struct, kw_only=True):
    """The log start offset of each partition."""

    topic: str
    first_offsets: dict[str, int]


async def create_topic(request: WebRequest) -> CreatedTopic:
    """Create a topic. Raises TOPIC_ALREADY_EXISTS if it exists; an invalid field is named in the error."""
    new: NewTopic = request.body
    cluster = request.site.clusters.get(new.cluster)
    made = await topics.create_topic(
        cluster,
        new.name,
        cluster.timeout_s,
        partitions=topics.BROKERS_CHOICE if new.partitions is None else new.partitions,
        replication_factor=topics.BROKERS_CHOICE if new.replication_factor is None else new.replication_factor,
        settings=new.settings,
    )
    return CreatedTopic(name=new.name, cluster=cluster.name, id=str(made))


async def list_topics(request: WebRequest) -> ListedTopics:
    """Return a page of topics, ordered by name."""
    parameters: PageParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
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


async def describe_topic(request: WebRequest) -> TopicBody:
    """Return the topic's partitions with offsets and sizes, and its own settings."""
    parameters: TopicParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
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


async def delete_topic(request: WebRequest) -> None:
    """Delete the topic and all its messages."""
    parameters: TopicParameters = request.parameters
    cluster = request.site.clusters.get(parameters.cluster)
    await topics.delete_topic(cluster, parameters.topic, cluster.timeout_s)


async def add_partitions(request: WebRequest) -> TopicBody:
    """Increase the number of partitions. Raises INVALID_PARTITIONS if the total is not larger than before."""
    parameters: TopicParameters = request.parameters
    more: MorePartitions = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    await topics.add_partitions(
        cluster, parameters.topic, more.total, cluster.timeout_s, validate_only=more.validate_only
    )
    return await describe_topic(request)


async def get_offsets(request: WebRequest) -> TopicOffsets:
    """Return the first or last offset of each partition, or the offset of the first message at or after a time."""
    parameters: OffsetQuery = request.parameters
    name, text = parameters.given()
    reader = await TopicReader.open(request.site.clusters.get(parameters.cluster), parameters.topic)
    word = start_word(text) if name != "time" else None
    if word is not None:
        positions = await reader.begin(word, parameters.partition)
    elif name == "offset":
        why = f"{text[:60]!r} is not an end of the log (use {ACCEPTED_WORDS}; for a time use `time`)"
        raise invalid_position(name, why)
    else:
        time_ms = parse_time_ms(text, request.site.clock.wall_ms(), name)
        positions = await reader.begin_at(time_ms, partition=parameters.partition)
    return TopicOffsets(
        topic=parameters.topic,
        offset=format_positions(positions, alone=parameters.partition is not None),
        partitions={str(partition): offset for partition, offset in sorted(positions.items())},
    )


async def delete_messages(request: WebRequest) -> LogStartOffsets:
    """Delete the oldest messages of a topic permanently."""
    parameters: TopicParameters = request.parameters
    removal: DeleteRecordsBody = request.body
    cluster = request.site.clusters.get(parameters.cluster)
    places: dict[int, int] = {}
    for text, offset in removal.before.items():
        if not (text.isascii() and text.isdigit() and int(text) < 2**31):
            raise invalid("before", f"{text[:20]!r} is not a partition number")
        places[int(text)] = offset
    found = await topics.delete_messages(cluster, parameters.topic, places, cluster.timeout_s)
    return LogStartOffsets(
        topic=parameters.topic, first_offsets={str(number): offset for number, offset in found.items()}
    )
