"""Computes how far a group is behind the log end of each partition."""

from collections.abc import Iterable

from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupDescription, GroupLag
from millstream.sdk.admin.topic_sizes import OffsetRange, extents
from millstream.sdk.cluster_queries import ClusterQueries
from millstream.sdk.connection.retry_policy import Deadline


async def group_lag(client: ClusterQueries, group_id: str, timeout_s: float) -> dict[TopicPartition, GroupLag]:
    """Return the lag of a group as `lag_of` does; raises GROUP_ID_NOT_FOUND if it does not exist."""
    deadline = Deadline(timeout_s)
    return await lag_of(client, await client.groups.describe(group_id, timeout_s=timeout_s), deadline.left_s)


async def lag_of(client: ClusterQueries, group: GroupDescription, timeout_s: float) -> dict[TopicPartition, GroupLag]:
    """Return the lag of a described group in all partitions of the topics that it has committed offsets of or reads."""
    deadline = Deadline(timeout_s)
    committed = await client.groups.offsets(group.group_id, timeout_s=deadline.left_s)
    owned = {where for member in group.members for where in member.partitions}
    names = {where.topic for where in (*committed, *owned)} | {name for each in group.members for name in each.topics}
    if not names:
        return {}
    view = await client.metadata(sorted(names), timeout_s=deadline.left_s)
    topics = [topic for topic in view.topics.values() if not topic.error_number]
    spans = await extents(client, topics, deadline.left_s)
    return {where: _lag(where, committed.get(where), spans) for where in _sorted(spans, committed, owned)}


def _sorted(*places: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted({where for each in places for where in each})


def _lag(
    where: TopicPartition, committed: CommittedOffset | None, spans: dict[TopicPartition, OffsetRange | None]
) -> GroupLag:
    span = spans.get(where)
    if span is None:
        return GroupLag(committed, None, None, None, is_damaged=where in spans)
    start = span.first if committed is None else max(committed.offset, span.first)
    return GroupLag(committed, span.first, span.next, max(0, span.next - start))
