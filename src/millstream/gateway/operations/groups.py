"""Lists, describes and changes groups; shared by the web API and gRPC.

In a cluster with several members each member knows the part of a group that concerns its own topics. The results are
merged.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from millstream.gateway.failures import invalid
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.gateway.operations.topics import PAGE_MAX, find_offsets
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, LATEST
from millstream.sdk.admin.group_results import CommittedOffset, GroupDescription, GroupLag, GroupListing

Offsets = dict[TopicPartition, CommittedOffset]


class GroupRows(NamedTuple):
    """A page of groups, ordered by name. Pass `after` to get the next page; it is None on the last one."""

    rows: list[GroupListing]
    after: str | None


async def list_groups(
    cluster: ServedCluster,
    limit: int,
    after: str,
    timeout_s: float,
    states: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> GroupRows:
    """Return at most `limit` groups whose names follow `after`, optionally only those in these states or of these
    kinds.
    """
    if not 1 <= limit <= PAGE_MAX:
        raise invalid("page_size", f"{limit} is not between 1 and {PAGE_MAX}")

    async def listed(member: ClusterMember) -> list[GroupListing]:
        return await member.client.groups.list(states=states, kinds=kinds, timeout=timeout_s)

    found = sorted(row for rows in await cluster.all(listed) for row in rows if row.group_id > after)
    rows = [next(same) for _, same in groupby(found, key=lambda row: row.group_id)]
    return GroupRows(rows[:limit], rows[limit - 1].group_id if len(rows) > limit else None)


async def describe_group(cluster: ServedCluster, group: str, timeout_s: float) -> GroupDescription:
    """Return the group with all its members. Raises GROUP_ID_NOT_FOUND if it does not exist."""

    async def described(member: ClusterMember) -> GroupDescription:
        return await member.client.groups.describe(group, timeout=timeout_s)

    found = await cluster.wherever_known(described)
    fullest = max(found, key=lambda each: len(each.members))
    return fullest._replace(members=tuple(one for each in found for one in each.members))


async def group_lag(cluster: ServedCluster, group: str, timeout_s: float) -> dict[TopicPartition, GroupLag]:
    """Return the group's lag in each partition that it reads or has committed an offset of.

    Raises GROUP_ID_NOT_FOUND if the group is unknown.
    """

    async def behind(member: ClusterMember) -> dict[TopicPartition, GroupLag]:
        return await member.client.groups.lag(group, timeout=timeout_s)

    found: dict[TopicPartition, GroupLag] = {}
    for each in await cluster.wherever_known(behind):
        found |= each
    return dict(sorted(found.items()))


async def group_offsets(
    cluster: ServedCluster, group: str, places: Sequence[TopicPartition], timeout_s: float
) -> Offsets:
    """Return the group's committed offsets, of these partitions or of all."""

    async def committed(member: ClusterMember) -> Offsets:
        return await member.client.groups.offsets(group, places or None, timeout=timeout_s)

    return {where: row for answer in await cluster.all(committed) for where, row in answer.items()}


async def commit_offsets(
    cluster: ServedCluster, group: str, offsets: Mapping[TopicPartition, CommittedOffset], timeout_s: float
) -> None:
    """Set the group's committed offsets. Raises NON_EMPTY_GROUP while the group has members."""
    for member, places in (await _by_home(cluster, offsets)).items():
        await member.client.groups.commit(group, {where: offsets[where] for where in places}, timeout=timeout_s)


async def reset_offsets(
    cluster: ServedCluster,
    group: str,
    topic: str,
    partitions: Sequence[int],
    to: str | int | Mapping[int, int],
    timeout_s: float,
    *,
    is_time: bool = False,
    validate_only: bool = False,
) -> dict[int, int]:
    """Move the group's committed offsets and return them by partition.

    `to` is "beginning", "latest", an offset, an offset per partition, or with `is_time` a timestamp in milliseconds.
    Offsets are limited to the range of the log.
    """
    if isinstance(to, Mapping):
        partitions = partitions or sorted(to)
        to = {number: to[number] for number in partitions if number in to}
    first = await find_offsets(cluster, topic, partitions, BEGINNING, timeout_s)
    last = await find_offsets(cluster, topic, list(first), LATEST, timeout_s)
    if isinstance(to, str):
        wanted = {number: (first if to == BEGINNING else last)[number].offset for number in first}
    elif isinstance(to, Mapping):
        wanted = dict(to)
    elif is_time:
        found = await find_offsets(cluster, topic, list(first), to, timeout_s)
        wanted = {number: row.offset if row.offset >= 0 else last[number].offset for number, row in found.items()}
    else:
        wanted = dict.fromkeys(first, to)
    places = {number: min(max(offset, first[number].offset), last[number].offset) for number, offset in wanted.items()}
    if not validate_only:
        rows = {TopicPartition(topic, number): CommittedOffset(offset) for number, offset in places.items()}
        await commit_offsets(cluster, group, rows, timeout_s)
    return places


async def delete_offsets(
    cluster: ServedCluster, group: str, places: Sequence[TopicPartition], timeout_s: float
) -> None:
    """Delete the group's committed offsets of these partitions."""
    for member, share in (await _by_home(cluster, places)).items():
        await member.client.groups.delete_offsets(group, share, timeout=timeout_s)


async def delete_group(cluster: ServedCluster, group: str, timeout_s: float) -> None:
    """Delete the group and its offsets. Raises GROUP_ID_NOT_FOUND if no member knows it."""

    async def deleted(member: ClusterMember) -> None:
        await member.client.groups.delete(group, timeout=timeout_s)

    await cluster.wherever_known(deleted)


async def _by_home(
    cluster: ServedCluster, places: Iterable[TopicPartition]
) -> dict[ClusterMember, list[TopicPartition]]:
    found: dict[ClusterMember, list[TopicPartition]] = {}
    for where in places:
        found.setdefault(await cluster.home(where.topic), []).append(where)
    return found
