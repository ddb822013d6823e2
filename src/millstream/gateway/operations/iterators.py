"""Iterators of a cluster, one call at a time: what the web API and gRPC offer alike.

Nothing is kept between two calls, so that each may come to another gateway. Where a cluster has several members, a
client is in the group at each of them. A caller could name any server in an iterator, so that the one it names is never
asked: the partition's leader is.
"""

from collections.abc import Awaitable, Callable, Sequence

from millstream.gateway.draining import Draining
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.gateway.operations.reads import ReadLimits
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.iterating.requests import (
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)

_ANYBODY = Address("", 0)


def given(
    topic: str, partition: int, token: bytes, *, offset: int = 0, max_messages: int = 0, generation: int = 0
) -> GroupIterator:
    """An iterator as a caller gives it: brokers go by the token alone, the rest is for answers."""
    return GroupIterator(topic, partition, offset, max_messages, generation, _ANYBODY, token)


async def join(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> IteratorMembership:
    """Be a member of the group, whether it was one before or not."""
    return await _membership(cluster, lambda member: member.calls.join(group, client_id, timeout=timeout_s))


async def heartbeat(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> IteratorMembership:
    """Be heard of; UNKNOWN_MEMBER_ID for who is not a member, or no longer."""
    return await _membership(cluster, lambda member: member.calls.heartbeat(group, client_id, timeout=timeout_s))


async def leave(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> None:
    """What the client has goes to the others at once; UNKNOWN_MEMBER_ID for who is not a member."""
    await cluster.wherever_known(lambda member: member.calls.leave(group, client_id, timeout=timeout_s))


async def in_flight(
    cluster: ServedCluster, group: str, client_id: str | None, timeout_s: float
) -> list[ListedIterator]:
    """What a client has in flight, or all clients of a group (None); GROUP_ID_NOT_FOUND when there is none such."""

    async def listed(member: ClusterMember) -> list[ListedIterator]:
        return await member.calls.list(group, client_id, timeout=timeout_s)

    return [row for rows in await cluster.wherever_known(listed) for row in rows]


async def get(
    cluster: ServedCluster,
    group: str,
    client_id: str,
    where: TopicPartition,
    timeout_s: float,
    *,
    max_messages: int,
    in_flight_ms: int | None,
    start: str,
) -> GroupIterator:
    """The iterator of a partition, from where the group is; NOT_OWNER while the partition is not the client's."""
    member = await cluster.home(where.topic)
    return await member.calls.get(
        group,
        client_id,
        *where,
        max_messages=max_messages,
        in_flight=None if in_flight_ms is None else in_flight_ms / 1000,
        start=start,
        timeout=timeout_s,
    )


async def read(
    cluster: ServedCluster, iterator: GroupIterator, limits: ReadLimits, timeout_s: float, draining: Draining
) -> IteratorBatch:
    """Its messages; with none there, it is waited for the first, or until the gateway is drained."""
    member = await cluster.home(iterator.topic)
    batch = await member.calls.read(iterator, max_bytes=limits.max_bytes, timeout=timeout_s)
    if not batch.messages and limits.wait_s:
        await draining.waiting(_arrival(member, batch, limits.wait_s, timeout_s))
        batch = await member.calls.read(batch.iterator, max_bytes=limits.max_bytes, timeout=timeout_s)
    return batch


async def deliver(
    cluster: ServedCluster, group: str, client_id: str, iterator: GroupIterator, count: int, timeout_s: float
) -> float:
    """Note that so many places of the log were handed on; how many seconds it is in flight from now on."""
    member = await cluster.home(iterator.topic)
    return await member.calls.deliver(group, client_id, iterator, count, timeout=timeout_s)


async def commit(
    cluster: ServedCluster, group: str, client_id: str, iterator: GroupIterator, count: int | None, timeout_s: float
) -> IteratorCommit:
    """Commit so many places of the log, or what was handed on (None); with the next iterator, if there is one."""
    member = await cluster.home(iterator.topic)
    return await member.calls.commit(group, client_id, iterator, count, timeout=timeout_s)


async def _arrival(member: ClusterMember, batch: IteratorBatch, wait_s: float, timeout_s: float) -> None:
    """Wait until there is something behind what was read, for so long."""
    where = batch.iterator.topic, batch.iterator.partition
    await member.client.read(*where, batch.end_offset, max_messages=1, wait=wait_s, timeout=timeout_s)


async def _membership(
    cluster: ServedCluster, ask: Callable[[ClusterMember], Awaitable[IteratorMembership]]
) -> IteratorMembership:
    found: Sequence[IteratorMembership] = await cluster.all(ask)
    return IteratorMembership(
        max(each.generation for each in found),
        all(each.is_settled for each in found),
        min(each.heartbeat_s for each in found),
        min(each.session_s for each in found),
        tuple(where for each in found for where in each.owned),
    )
