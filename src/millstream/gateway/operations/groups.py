"""Groups of a cluster, seen from outside: what the web API and gRPC offer alike.

Where a cluster has several members, each knows of a group what concerns its own topics; together that is the group.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from millstream.gateway.failures import invalid
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.gateway.operations.reads import BEGINNING, LATEST
from millstream.gateway.operations.topics import PAGE_MAX, find_offsets
from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupDescription, GroupListing

Offsets = dict[TopicPartition, CommittedOffset]


class GroupRows(NamedTuple):
    """A page of groups in the order of their names; `after` asks for the next one, and is None where there is none."""

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
    """At most `limit` groups behind `after`, of all or of those in these states and of these kinds."""
    if not 1 <= limit <= PAGE_MAX:
        raise invalid("page_size", f"{limit} is not between 1 and {PAGE_MAX}")

    async def listed(member: ClusterMember) -> list[GroupListing]:
        return await member.client.groups.list(states=states, kinds=kinds, timeout=timeout_s)

    found = sorted(row for rows in await cluster.all(listed) for row in rows if row.group_id > after)
    rows = [next(same) for _, same in groupby(found, key=lambda row: row.group_id)]
    return GroupRows(rows[:limit], rows[limit - 1].group_id if len(rows) > limit else None)


async def describe_group(cluster: ServedCluster, group: str, timeout_s: float) -> GroupDescription:
    """The group with all its members; GROUP_ID_NOT_FOUND when there is none."""

    async def described(member: ClusterMember) -> GroupDescription:
        return await member.client.groups.describe(group, timeout=timeout_s)

    found = await cluster.wherever_known(described)
    fullest = max(found, key=lambda each: len(each.members))
    return fullest._replace(members=tuple(one for each in found for one in each.members))


async def group_offsets(
    cluster: ServedCluster, group: str, places: Sequence[TopicPartition], timeout_s: float
) -> Offsets:
    """What the group has committed, for these partitions or all."""

    async def committed(member: ClusterMember) -> Offsets:
        return await member.client.groups.offsets(group, places or None, timeout=timeout_s)

    return {where: row for answer in await cluster.all(committed) for where, row in answer.items()}


async def commit_offsets(
    cluster: ServedCluster, group: str, offsets: Mapping[TopicPartition, CommittedOffset], timeout_s: float
) -> None:
    """Say where the group goes on; UNKNOWN_MEMBER_ID while it has members."""
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
    """Take the group to "beginning", "latest", an offset, an offset for each partition, or a time (ms); where it is
    then. Never beyond what is there."""
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
    """Forget where the group was in these partitions."""
    for member, share in (await _by_home(cluster, places)).items():
        await member.client.groups.delete_offsets(group, share, timeout=timeout_s)


async def delete_group(cluster: ServedCluster, group: str, timeout_s: float) -> None:
    """Delete it with its offsets; GROUP_ID_NOT_FOUND when no member knows it."""

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
