"""Topics: made, listed, described, changed and deleted."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.gateway.clusters import DEFAULT, Member
from penstock.gateway.failures import FieldError
from penstock.gateway.http.asked import Asked
from penstock.gateway.http.named import ClusterName, OfTopic, Page
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.names import TopicPartition, check_new_topic_name
from penstock.sdk.answers import PartitionView, TopicView
from penstock.sdk.topic_sizes import PartitionSize

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


class MadeTopic(msgspec.Struct, kw_only=True):
    name: str
    cluster: str
    id: str
    partitions: int


class ShownPartition(msgspec.Struct, kw_only=True):
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


class ShownTopic(msgspec.Struct, kw_only=True):
    name: str
    id: str
    internal: bool
    partitions: list[ShownPartition]
    settings: dict[str, str | None]
    """Those that are its own."""


class MorePartitions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    total: Annotated[int, Meta(ge=1, le=10_000, description="How many it shall have.")]
    validate_only: bool = False


async def create_topic(asked: Asked) -> MadeTopic:
    """Make a topic; TOPIC_ALREADY_EXISTS where it is there, and an error that names the field where it cannot be."""
    new: NewTopic = asked.body
    cluster = asked.site.clusters.get(new.cluster)
    try:
        check_new_topic_name(new.name)
        member = await cluster.home(new.name)
        made = await member.client.create_topic(
            new.name,
            partitions=-1 if new.partitions is None else new.partitions,
            replication_factor=-1 if new.replication_factor is None else new.replication_factor,
            settings=new.settings,
            timeout=cluster.timeout_s,
        )
    except PenstockError as error:
        if error.code in (ErrorCode.INVALID_TOPIC, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise FieldError(error.code, error.detail, "name") from None
        raise
    view = await member.client.describe_topic(new.name, timeout=cluster.timeout_s)
    return MadeTopic(name=new.name, cluster=cluster.name, id=str(made), partitions=len(view.partitions))


async def list_topics(asked: Asked) -> ListedTopics:
    """A page of them, in the order of their names."""
    parameters: Page = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    limit, after = parameters.limit, parameters.after

    async def page(member: Member) -> tuple[bool, list[ListedTopic]]:
        found = await member.client.admin.list_topics(limit=limit, after=after, timeout=member.timeout_s)
        sizes = await member.client.admin.sizes(found.topics, timeout=member.timeout_s)
        return found.after is not None, [_listed(view, sizes) for view in found.topics]

    pages = await cluster.all(page)
    rows = sorted((row for _, each in pages for row in each), key=lambda row: row.name)
    shown = rows[:limit]
    has_more = len(rows) > limit or any(more for more, _ in pages)
    return ListedTopics(topics=shown, after=shown[-1].name if has_more and shown else None)


def _listed(view: TopicView, sizes: Mapping[TopicPartition, PartitionSize]) -> ListedTopic:
    """Without numbers where one of its partitions does not tell, or was deleted meanwhile."""
    found = [sizes.get(TopicPartition(view.name, row.number)) for row in view.partitions]
    counts = [None if each is None else _messages(each) for each in found]
    sizes_bytes = [None if each is None else each.size_bytes for each in found]
    return ListedTopic(
        name=view.name,
        id=str(view.topic_id),
        internal=view.is_internal,
        partitions=len(view.partitions),
        messages=_sum(counts),
        bytes=_sum(sizes_bytes),
    )


def _messages(size: PartitionSize) -> int | None:
    if size.first_offset is None or size.next_offset is None:
        return None
    return size.next_offset - size.first_offset


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


async def describe_topic(asked: Asked) -> ShownTopic:
    """Its partitions with their offsets and sizes, and its own settings; UNKNOWN_TOPIC_OR_PARTITION without one."""
    parameters: OfTopic = asked.parameters
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    view = await _view(member, parameters.topic)
    sizes = await member.client.admin.sizes([view], timeout=member.timeout_s)
    settings = await member.client.admin.describe_settings("topic", view.name, timeout=member.timeout_s)
    return ShownTopic(
        name=view.name,
        id=str(view.topic_id),
        internal=view.is_internal,
        partitions=[_partition(view.name, row, sizes) for row in view.partitions],
        settings={each.name: each.value for each in settings if each.is_own},
    )


async def _view(member: Member, topic: str) -> TopicView:
    """As it is now, not as it is remembered."""
    found = (await member.client.metadata([topic], timeout=member.timeout_s)).topics.get(topic)
    if found is None or found.error_number:
        return await member.client.describe_topic(topic, timeout=member.timeout_s)  # Which says what is wrong.
    return found


def _partition(topic: str, row: PartitionView, sizes: Mapping[TopicPartition, PartitionSize]) -> ShownPartition:
    size = sizes.get(TopicPartition(topic, row.number))
    return ShownPartition(
        partition=row.number,
        leader=row.leader_id,
        leader_epoch=row.leader_epoch,
        replicas=row.replicas,
        in_sync=row.in_sync,
        first_offset=None if size is None else size.first_offset,
        next_offset=None if size is None else size.next_offset,
        bytes=None if size is None else size.size_bytes,
    )


async def delete_topic(asked: Asked) -> None:
    """With all its messages; UNKNOWN_TOPIC_OR_PARTITION where it is not there."""
    parameters: OfTopic = asked.parameters
    cluster = asked.site.clusters.get(parameters.cluster)
    member = await cluster.home(parameters.topic)
    await member.client.delete_topic(parameters.topic, timeout=cluster.timeout_s)
    cluster.forget(parameters.topic)


async def add_partitions(asked: Asked) -> ShownTopic:
    """Let a topic have more; INVALID_PARTITIONS unless those are more than it has."""
    parameters: OfTopic = asked.parameters
    more: MorePartitions = asked.body
    member = await asked.site.clusters.get(parameters.cluster).home(parameters.topic)
    await member.client.admin.create_partitions(
        parameters.topic, more.total, validate_only=more.validate_only, timeout=member.timeout_s
    )
    return await describe_topic(asked)
