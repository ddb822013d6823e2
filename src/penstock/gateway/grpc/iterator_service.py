"""IteratorService: the calls of iterators, one by one, for clients that may ask another gateway each time."""

from collections.abc import Sequence

from penstock.gateway.clusters import Member
from penstock.gateway.failures import invalid
from penstock.gateway.grpc.calls import Call, needs
from penstock.gateway.grpc.limits import ReadingLimits
from penstock.gateway.grpc.telling import edge_of, messages_told, partitions_told
from penstock.gateway.grpc.v1 import iterators_pb2 as pb
from penstock.gateway.rights import Right
from penstock.model.errors import ErrorCode, PenstockError
from penstock.sdk.address import Address
from penstock.sdk.iterating.options import MAX_MESSAGES
from penstock.sdk.iterating.requests import GroupIterator, IteratorBatch, ListedIterator, Membership

_ANYBODY = Address("", 0)
"""Callers could name any server, so that the one they name is not asked: the partition's leader is."""


class IteratorService:
    def __init__(self, reading: ReadingLimits) -> None:
        self._reading = reading

    # The group. Where a cluster has several members, a client is in the group at each of them.

    @needs(Right.GROUPS_WRITE, "group")
    async def join_group(self, request: pb.JoinGroupRequest, call: Call) -> pb.JoinGroupResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)

        async def join(member: Member) -> Membership:
            return await member.calls.join(request.group, request.client_id, timeout=timeout_s)

        return pb.JoinGroupResponse(membership=_membership(await cluster.all(join)))

    @needs(Right.GROUPS_WRITE, "group")
    async def beat(self, request: pb.BeatRequest, call: Call) -> pb.BeatResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)

        async def beat(member: Member) -> Membership:
            return await member.calls.beat(request.group, request.client_id, timeout=timeout_s)

        return pb.BeatResponse(membership=_membership(await cluster.all(beat)))

    @needs(Right.GROUPS_WRITE, "group")
    async def leave_group(self, request: pb.LeaveGroupRequest, call: Call) -> pb.LeaveGroupResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)

        async def leave(member: Member) -> None:
            await member.calls.leave(request.group, request.client_id, timeout=timeout_s)

        await cluster.all(leave)
        return pb.LeaveGroupResponse()

    # Iterators.

    @needs(Right.GROUPS_WRITE, "group")
    async def get_iterator(self, request: pb.GetIteratorRequest, call: Call) -> pb.GetIteratorResponse:
        cluster = call.cluster(request.cluster)
        member = await cluster.home(request.topic)
        found = await member.calls.get(
            request.group,
            request.client_id,
            request.topic,
            request.partition,
            max_messages=request.max_messages or MAX_MESSAGES,
            in_flight=request.in_flight_ms / 1000 if request.in_flight_ms else None,
            start=edge_of(request.start, "start"),
            timeout=call.timeout_s(cluster),
        )
        return pb.GetIteratorResponse(iterator=_told(found))

    @needs(Right.GROUPS_READ, "group")
    async def list_iterators(self, request: pb.ListIteratorsRequest, call: Call) -> pb.ListIteratorsResponse:
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)

        async def listed(member: Member) -> list[ListedIterator] | PenstockError:
            try:
                return await member.calls.list(request.group, request.client_id or None, timeout=timeout_s)
            except PenstockError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                return error

        answers = await cluster.all(listed)
        found = [answer for answer in answers if not isinstance(answer, PenstockError)]
        if not found:
            raise next(answer for answer in answers if isinstance(answer, PenstockError))
        return pb.ListIteratorsResponse(iterators=[_listed(row) for rows in found for row in rows])

    @needs(Right.MESSAGES_READ, "topic", within="iterator")
    async def read_iterator(self, request: pb.ReadIteratorRequest, call: Call) -> pb.ReadIteratorResponse:
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(0, request.max_bytes, call.wait_s(wait_s))
        cluster = call.cluster(request.cluster)
        timeout_s = call.timeout_s(cluster)
        iterator = _given(request.iterator)
        member = await cluster.home(iterator.topic)
        batch = await member.calls.read(iterator, max_bytes=limits.max_bytes, timeout=timeout_s)
        if not batch.messages and limits.wait_s:
            await call.waiting(_arrival(member, batch, limits.wait_s, timeout_s))
            batch = await member.calls.read(batch.iterator, max_bytes=limits.max_bytes, timeout=timeout_s)
        server = Address(request.iterator.host, request.iterator.port)
        return pb.ReadIteratorResponse(
            iterator=_told(batch.iterator, server),
            messages=messages_told(batch.messages),
            end_offset=batch.end_offset,
            next=_told(batch.following, server),
        )

    @needs(Right.GROUPS_WRITE, "group")
    async def hand_iterator(self, request: pb.HandIteratorRequest, call: Call) -> pb.HandIteratorResponse:
        cluster = call.cluster(request.cluster)
        iterator = _given(request.iterator)
        member = await cluster.home(iterator.topic)
        left_s = await member.calls.hand(
            request.group, request.client_id, iterator, _count(request.count), timeout=call.timeout_s(cluster)
        )
        return pb.HandIteratorResponse(left_ms=int(left_s * 1000))

    @needs(Right.GROUPS_WRITE, "group")
    async def commit_iterator(self, request: pb.CommitIteratorRequest, call: Call) -> pb.CommitIteratorResponse:
        if request.WhichOneof("read") is None:
            raise invalid("count", "say how much of it was read: `count`, or `handed`")
        cluster = call.cluster(request.cluster)
        iterator = _given(request.iterator)
        member = await cluster.home(iterator.topic)
        count = None if request.HasField("handed") else _count(request.count)
        done = await member.calls.commit(
            request.group, request.client_id, iterator, count, timeout=call.timeout_s(cluster)
        )
        return pb.CommitIteratorResponse(position=done.position, next=_told(done.following))


async def _arrival(member: Member, batch: IteratorBatch, wait_s: float, timeout_s: float) -> None:
    """Wait until there is something behind what was read, for so long."""
    where = batch.iterator.topic, batch.iterator.partition
    await member.client.read(*where, batch.end_offset, max_messages=1, wait=wait_s, timeout=timeout_s)


def _count(count: int) -> int:
    if count < 0:
        raise invalid("count", f"{count} is negative")
    return count


def _given(iterator: pb.Iterator) -> GroupIterator:
    return GroupIterator(
        iterator.topic,
        iterator.partition,
        iterator.offset,
        iterator.max_messages,
        iterator.generation,
        _ANYBODY,
        iterator.token,
    )


def _told(iterator: GroupIterator | None, server: Address | None = None) -> pb.Iterator | None:
    if iterator is None:
        return None
    server = server or iterator.server
    return pb.Iterator(
        topic=iterator.topic,
        partition=iterator.partition,
        offset=iterator.offset,
        max_messages=iterator.max_messages,
        generation=iterator.generation,
        host=server.host,
        port=server.port,
        token=iterator.token,
    )


def _listed(row: ListedIterator) -> pb.ListedIterator:
    return pb.ListedIterator(
        client_id=row.client_id,
        topic=row.where.topic,
        partition=row.where.partition,
        offset=row.offset,
        generation=row.generation,
        left_ms=int(row.left_s * 1000),
        handed=row.handed,
        iterator=_told(row.iterator),
    )


def _membership(found: Sequence[Membership]) -> pb.Membership:
    return pb.Membership(
        generation=max(each.generation for each in found),
        settled=all(each.is_settled for each in found),
        heartbeat_interval_ms=int(min(each.heartbeat_s for each in found) * 1000),
        session_timeout_ms=int(min(each.session_s for each in found) * 1000),
        owned=partitions_told(where for each in found for where in each.owned),
    )
