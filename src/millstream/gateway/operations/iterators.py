"""Makes the iterator calls of a cluster, one at a time; shared by the web API and gRPC.

A gateway keeps nothing between two calls, so each call may go to another gateway. In a cluster with several members a
client joins the group at each member. A caller could put any server address into an iterator, so the gateway ignores
that address and contacts the leader of the partition.
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

_NO_ADDRESS = Address("", 0)


def given(
    topic: str, partition: int, token: bytes, *, offset: int = 0, max_messages: int = 0, generation: int = 0
) -> GroupIterator:
    """Build an iterator from a caller's fields. Brokers check only the token; the other fields appear in responses."""
    return GroupIterator(topic, partition, offset, max_messages, generation, _NO_ADDRESS, token)


async def join(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> IteratorMembership:
    """Join the group, or stay in it."""
    return await _membership(cluster, lambda member: member.calls.join(group, client_id, timeout=timeout_s))


async def heartbeat(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> IteratorMembership:
    """Send a heartbeat. Raises UNKNOWN_MEMBER_ID if the client is not, or no longer, a member."""
    return await _membership(cluster, lambda member: member.calls.heartbeat(group, client_id, timeout=timeout_s))


async def leave(cluster: ServedCluster, group: str, client_id: str, timeout_s: float) -> None:
    """Leave the group. The next request of another member gets the partitions.

    A waiting poll gets them at its next heartbeat. Raises UNKNOWN_MEMBER_ID if the client is no member.
    """
    await cluster.wherever_known(lambda member: member.calls.leave(group, client_id, timeout=timeout_s))


async def in_flight(
    cluster: ServedCluster, group: str, client_id: str | None, timeout_s: float
) -> list[ListedIterator]:
    """Return the iterators in flight of a client, or of the whole group (None).

    Raises GROUP_ID_NOT_FOUND for an unknown group.
    """

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
    """Get a partition's iterator at the group's position.

    Raises NOT_OWNER while the client does not own the partition.
    """
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
    """Read the iterator's messages. Waits for the first message if there is none, until the gateway drains."""
    member = await cluster.home(iterator.topic)

    async def found(wanted: GroupIterator) -> IteratorBatch:
        return await member.calls.read(
            wanted, max_bytes=limits.max_bytes, on_bad_batch=limits.on_bad_batch, timeout=timeout_s
        )

    batch = await found(iterator)
    if not batch.messages and limits.wait_s:
        await draining.waiting(_arrival(member, batch, limits.wait_s, timeout_s))
        batch = await found(batch.iterator)
    return batch if limits.answer is None else batch.first(limits.answer.count(batch.messages))


async def deliver(
    cluster: ServedCluster, group: str, client_id: str, iterator: GroupIterator, count: int, timeout_s: float
) -> float:
    """Record that `count` offsets were delivered. Returns the seconds for which the iterator stays in flight."""
    member = await cluster.home(iterator.topic)
    return await member.calls.deliver(group, client_id, iterator, count, timeout=timeout_s)


async def commit(
    cluster: ServedCluster, group: str, client_id: str, iterator: GroupIterator, count: int | None, timeout_s: float
) -> IteratorCommit:
    """Commit `count` offsets, or what was delivered (None). The result has the next iterator, if there is one."""
    member = await cluster.home(iterator.topic)
    return await member.calls.commit(group, client_id, iterator, count, timeout=timeout_s)


async def _arrival(member: ClusterMember, batch: IteratorBatch, wait_s: float, timeout_s: float) -> None:
    """Wait up to `wait_s` for a message after the batch."""
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
