"""Lists, creates, describes, changes and deletes topics, on any member of a cluster; shared by the web API and gRPC.

All functions raise what the SDK raises: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_TOPIC and so on.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.gateway.failures import FieldError, invalid, setting_failures, setting_field
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.setting_values import SettingValue
from millstream.sdk.admin.admin_results import ConfigSetting, ResourceKind, TopicPage
from millstream.sdk.admin.topic_sizes import PartitionSize, TopicSize
from millstream.sdk.responses import ListedOffset, TopicView

PAGE_TOPICS = 100
PAGE_MAX = 1_000
BROKERS_CHOICE = -1
"""Number of partitions or replication factor that means the broker's default."""

_TOPIC = ResourceKind.TOPIC


class TopicPageRows(NamedTuple):
    """A page of topics, ordered by name. Pass `after` to get the next page; it is None on the last one."""

    rows: list[TopicSize]
    after: str | None


class TopicDescription(NamedTuple):
    view: TopicView
    partitions: list[PartitionSize]


async def list_topics(cluster: ServedCluster, limit: int, after: str | None, timeout_s: float) -> TopicPageRows:
    """Return at most `limit` topics of all members whose names follow `after`, with their sizes."""
    if not 1 <= limit <= PAGE_MAX:
        raise invalid("page_size", f"{limit} is not between 1 and {PAGE_MAX}")

    async def page(member: ClusterMember) -> TopicPage:
        return await member.client.admin.list_topics(limit=limit, after=after, internal=True, timeout=timeout_s)

    pages = await cluster.all(page)
    found = sorted((view.name, number) for number, page in enumerate(pages) for view in page.topics)
    shown = found[:limit]
    last = shown[-1][0] if shown and (len(found) > limit or any(page.after is not None for page in pages)) else None
    kept = set(shown)
    rows: list[TopicSize] = []
    for number, (member, part) in enumerate(zip(cluster.members, pages, strict=True)):
        views = [view for view in part.topics if (view.name, number) in kept]
        rows += await member.client.admin.topic_sizes(views, timeout=timeout_s)
    return TopicPageRows(sorted(rows, key=lambda row: row.view.name), last)


async def create_topic(
    cluster: ServedCluster,
    name: str,
    timeout_s: float,
    *,
    partitions: int = BROKERS_CHOICE,
    replication_factor: int = BROKERS_CHOICE,
    settings: Mapping[str, SettingValue] | None = None,
    exist_ok: bool = False,
) -> UUID:
    """Create a topic and return its id. With `exist_ok` an existing topic is left unchanged and its id returned."""
    try:
        member = await cluster.home(name)
        return await member.client.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings,
            exist_ok=exist_ok,
            timeout=timeout_s,
        )
    except MillstreamError as error:
        if error.code is ErrorCode.INVALID_CONFIG:
            field = setting_field("settings", settings or {}, error.detail)
            raise FieldError(error.code, error.detail, field) from error
        if error.code is ErrorCode.INVALID_TOPIC:
            raise FieldError(error.code, error.detail, "name") from None
        raise


async def describe_topic(cluster: ServedCluster, topic: str, timeout_s: float) -> TopicDescription:
    """Describe one topic and the sizes of its partitions."""
    member = await cluster.home(topic)
    view = await member.client.describe_topic(topic, timeout=timeout_s)
    return TopicDescription(view, await member.client.admin.partition_sizes(view, timeout=timeout_s))


async def delete_topic(cluster: ServedCluster, topic: str, timeout_s: float) -> None:
    """Delete the topic and all its messages."""
    member = await cluster.home(topic)
    try:
        await member.client.delete_topic(topic, timeout=timeout_s)
    finally:
        cluster.forget(topic)


async def add_partitions(
    cluster: ServedCluster, topic: str, total: int, timeout_s: float, *, validate_only: bool
) -> None:
    """Increase the number of partitions to `total`."""
    admin = (await cluster.home(topic)).client.admin
    try:
        await admin.create_partitions(topic, total, validate_only=validate_only, timeout=timeout_s)
    except MillstreamError as error:
        if error.code is not ErrorCode.INVALID_PARTITIONS:
            raise
        raise FieldError(error.code, error.detail, "total") from error


async def topic_settings(
    cluster: ServedCluster, topic: str, names: Sequence[str], timeout_s: float
) -> list[ConfigSetting]:
    """Return the topic's settings of these names, or all."""
    admin = (await cluster.home(topic)).client.admin
    return await admin.describe_settings(_TOPIC, topic, list(names) or None, timeout=timeout_s)


async def alter_topic_settings(
    cluster: ServedCluster,
    topic: str,
    chosen: Mapping[str, SettingValue],
    unset: Sequence[str],
    timeout_s: float,
    *,
    validate_only: bool = False,
) -> None:
    """Set some settings and unset others, all or none."""
    admin = (await cluster.home(topic)).client.admin
    with setting_failures(chosen, unset):
        await admin.alter_settings(_TOPIC, topic, chosen, unset=unset, validate_only=validate_only, timeout=timeout_s)


async def find_offsets(
    cluster: ServedCluster, topic: str, partitions: Sequence[int], place: str | int, timeout_s: float
) -> dict[int, ListedOffset]:
    """Find the offset of "beginning", "latest" or a time (ms) in these partitions, or in all.

    The offset is -1 if a partition has no message at or after the time.
    """
    client = (await cluster.home(topic)).client
    numbers = partitions or [row.number for row in (await client.describe_topic(topic, timeout=timeout_s)).partitions]
    when = place if isinstance(place, str) else place / 1000
    found = await client.offsets({TopicPartition(topic, number): when for number in numbers}, timeout=timeout_s)
    return {where.partition: listed for where, listed in found.items()}


async def delete_messages(
    cluster: ServedCluster, topic: str, before: Mapping[int, int], timeout_s: float
) -> dict[int, int]:
    """Delete the messages before these offsets, or all (-1), by partition. Returns the new log start offsets."""
    admin = (await cluster.home(topic)).client.admin
    places = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
    found = await admin.delete_records(places, timeout=timeout_s)
    return {where.partition: offset for where, offset in found.items()}
