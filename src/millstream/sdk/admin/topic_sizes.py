"""Counts messages and bytes of topics and partitions. Topics that are deleted meanwhile are left out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.cluster_queries import ClusterQueries
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.responses import PartitionView, TopicView


class OffsetRange(NamedTuple):
    """The offsets of a partition: the log start offset and the log end offset."""

    first: int
    next: int

    @property
    def messages(self) -> int:
        """Number of offsets in the range. It includes messages that compaction has removed."""
        return self.next - self.first


async def extents(
    client: ClusterQueries, views: Sequence[TopicView], timeout_s: float
) -> dict[TopicPartition, OffsetRange | None]:
    """Return the offset ranges of the partitions of these topics; None for a quarantined partition.

    Topics deleted meanwhile are left out; they do not fail the others.
    """
    if not views:
        return {}
    try:
        return await _extents(client, views, timeout_s)
    except MillstreamError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            left = await _still_there(client, views, timeout_s)
            if len(left) < len(views):
                return await extents(client, left, timeout_s)
        elif error.code is not ErrorCode.PARTITION_QUARANTINED:
            raise
        if len(views) == 1 and len(views[0].partitions) <= 1:
            if error.code is not ErrorCode.PARTITION_QUARANTINED:
                raise
            return {TopicPartition(views[0].name, row.number): None for row in views[0].partitions}
    first, second = _halves(views)
    return await extents(client, first, timeout_s) | await extents(client, second, timeout_s)


def _halves(views: Sequence[TopicView]) -> tuple[Sequence[TopicView], Sequence[TopicView]]:
    """Split the topics, or the partitions of one topic, to find the one whose request fails."""
    if len(views) > 1:
        half = len(views) // 2
        return views[:half], views[half:]
    (view,) = views
    half = len(view.partitions) // 2
    return [view._replace(partitions=view.partitions[:half])], [view._replace(partitions=view.partitions[half:])]


async def _extents(
    client: ClusterQueries, views: Sequence[TopicView], timeout_s: float
) -> dict[TopicPartition, OffsetRange | None]:
    places = [TopicPartition(view.name, row.number) for view in views for row in view.partitions]
    first = await client.list_offsets(dict.fromkeys(places, BEGINNING), timeout_s=timeout_s)
    last = await client.list_offsets(dict.fromkeys(places, LATEST), timeout_s=timeout_s)
    return {where: OffsetRange(first[where].offset, last[where].offset) for where in places}


async def _still_there(client: ClusterQueries, views: Sequence[TopicView], timeout_s: float) -> list[TopicView]:
    now = (await client.metadata([view.name for view in views], timeout_s=timeout_s)).topics
    return [view for view in views if view.name in now and not now[view.name].error_number]


async def bytes_by_partition(
    client: ClusterQueries, views: Sequence[TopicView], timeout_s: float
) -> Mapping[TopicPartition, int] | None:
    """Return the size of each partition's largest copy; None if the broker does not report sizes."""
    partitions = {view.name: [row.number for row in view.partitions] for view in views}
    try:
        directories = await client.admin.describe_log_dirs(partitions, timeout_s=timeout_s) if partitions else []
    except MillstreamError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    found: dict[TopicPartition, int] = {}
    for directory in directories:
        for where, size_bytes in directory.partition_bytes.items():
            found[where] = max(found.get(where, 0), size_bytes)
    return found


class TopicSize(NamedTuple):
    """The size of a topic. `messages` is None if a partition is quarantined, `size_bytes` if it is unknown."""

    view: TopicView
    messages: int | None
    size_bytes: int | None


async def topic_sizes(client: ClusterQueries, views: Sequence[TopicView], timeout_s: float) -> list[TopicSize]:
    """Return the sizes of the topics that still exist."""
    spans = await extents(client, views, timeout_s)
    there = [view for view in views if all(TopicPartition(view.name, row.number) in spans for row in view.partitions)]
    sizes = await bytes_by_partition(client, there, timeout_s)
    rows = []
    for view in there:
        places = [TopicPartition(view.name, row.number) for row in view.partitions]
        found = [spans[where] for where in places]
        messages = None if None in found else sum(span.messages for span in found if span is not None)
        rows.append(TopicSize(view, messages, None if sizes is None else sum(sizes.get(each, 0) for each in places)))
    return rows


class PartitionSize(NamedTuple):
    """The size of a partition. `extent` is None if it is quarantined, `size_bytes` if it is unknown."""

    view: PartitionView
    extent: OffsetRange | None
    size_bytes: int | None


async def partition_sizes(client: ClusterQueries, view: TopicView, timeout_s: float) -> list[PartitionSize]:
    """Return the size of each partition of a topic."""
    spans = await extents(client, [view], timeout_s)
    sizes = await bytes_by_partition(client, [view], timeout_s)
    rows = []
    for part in view.partitions:
        where = TopicPartition(view.name, part.number)
        rows.append(PartitionSize(part, spans.get(where), None if sizes is None else sizes.get(where, 0)))
    return rows
