"""How much is in topics: offsets, messages, bytes; as far as it can be told while topics come and go."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.cluster_queries import ClusterQueries
from millstream.sdk.requests import BEGINNING, LATEST
from millstream.sdk.responses import PartitionView, TopicView


class OffsetRange(NamedTuple):
    """The offsets of a partition: the first that is there, and the next that will be given."""

    first: int
    next: int

    @property
    def messages(self) -> int:
        """How many offsets it spans: its messages, and those that compaction took out of the middle."""
        return self.next - self.first


async def extents(
    client: ClusterQueries, views: Sequence[TopicView], timeout_s: float
) -> dict[TopicPartition, OffsetRange | None]:
    """The offsets of these topics' partitions; None where one is quarantined.

    A topic that was deleted meanwhile has none: one such topic does not hide the others.
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
    """So that what cannot be told is narrowed down, first to a topic and then to its partition."""
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
    """How large each partition's largest copy is; None where the broker does not tell."""
    asked = {view.name: [row.number for row in view.partitions] for view in views}
    try:
        directories = await client.admin.describe_log_dirs(asked, timeout_s=timeout_s) if asked else []
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
    """A topic in one row. `messages` is None where a partition is quarantined, `size_bytes` where nobody tells."""

    view: TopicView
    messages: int | None
    size_bytes: int | None


async def topic_sizes(client: ClusterQueries, views: Sequence[TopicView], timeout_s: float) -> list[TopicSize]:
    """Each topic that is still there when it is counted."""
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
    """A partition in one row. `extent` is None where it is quarantined, `size_bytes` where nobody tells."""

    view: PartitionView
    extent: OffsetRange | None
    size_bytes: int | None


async def partition_sizes(client: ClusterQueries, view: TopicView, timeout_s: float) -> list[PartitionSize]:
    """Each partition of a topic."""
    spans = await extents(client, [view], timeout_s)
    sizes = await bytes_by_partition(client, [view], timeout_s)
    rows = []
    for part in view.partitions:
        where = TopicPartition(view.name, part.number)
        rows.append(PartitionSize(part, spans.get(where), None if sizes is None else sizes.get(where, 0)))
    return rows
