"""Implements IteratorService: the iterator calls, each of which may go to another gateway."""

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.limits import ReadingLimits
from millstream.gateway.grpc.message_conversion import edge_of, to_topic_partitions
from millstream.gateway.grpc.v1 import iterators_pb2 as pb
from millstream.gateway.operations import iterators
from millstream.model.names import TopicPartition
from millstream.model.rights import Right
from millstream.model.start_words import GROUP_START
from millstream.sdk.connection.address import Address
from millstream.sdk.iterating.requests import GroupIterator, IteratorMembership, ListedIterator
from millstream.sdk.reader_defaults import ITERATOR_MESSAGES


class IteratorService:
    def __init__(self, reading: ReadingLimits) -> None:
        self._reading = reading

    # Membership.

    @needs(Right.GROUPS_WRITE, "group")
    async def join_group(self, request: pb.JoinGroupRequest, call: Call) -> pb.JoinGroupResponse:
        cluster = call.cluster(request.cluster)
        found = await iterators.join(cluster, request.group, request.client_id, call.timeout_s(cluster))
        return pb.JoinGroupResponse(membership=_membership(found))

    @needs(Right.GROUPS_WRITE, "group")
    async def heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
        cluster = call.cluster(request.cluster)
        found = await iterators.heartbeat(cluster, request.group, request.client_id, call.timeout_s(cluster))
        return pb.HeartbeatResponse(membership=_membership(found))

    @needs(Right.GROUPS_WRITE, "group")
    async def leave_group(self, request: pb.LeaveGroupRequest, call: Call) -> pb.LeaveGroupResponse:
        cluster = call.cluster(request.cluster)
        await iterators.leave(cluster, request.group, request.client_id, call.timeout_s(cluster))
        return pb.LeaveGroupResponse()

    # Iterators.

    @needs(Right.GROUPS_WRITE, "group")
    async def get_iterator(self, request: pb.GetIteratorRequest, call: Call) -> pb.GetIteratorResponse:
        cluster = call.cluster(request.cluster)
        found = await iterators.get(
            cluster,
            request.group,
            request.client_id,
            TopicPartition(request.topic, request.partition),
            call.timeout_s(cluster),
            max_messages=request.max_messages or ITERATOR_MESSAGES,
            in_flight_ms=request.in_flight_ms or None,
            start=edge_of(request.start, "start", GROUP_START),
        )
        return pb.GetIteratorResponse(iterator=_to_iterator(found))

    @needs(Right.GROUPS_READ, "group")
    async def list_iterators(self, request: pb.ListIteratorsRequest, call: Call) -> pb.ListIteratorsResponse:
        cluster = call.cluster(request.cluster)
        found = await iterators.in_flight(cluster, request.group, request.client_id or None, call.timeout_s(cluster))
        return pb.ListIteratorsResponse(iterators=map(_listed, found))

    @needs(Right.MESSAGES_READ, "topic", within="iterator")
    async def read_iterator(self, request: pb.ReadIteratorRequest, call: Call) -> pb.ReadIteratorResponse:
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(
            0, max_bytes=request.max_bytes, wait_s=call.wait_s(wait_s), skip_bad_batches=request.skip_bad_batches
        )
        cluster = call.cluster(request.cluster)
        iterator = _group_iterator(request.iterator)
        batch = await iterators.read(cluster, iterator, limits, call.timeout_s(cluster), call.draining)
        server = Address(request.iterator.host, request.iterator.port)
        return pb.ReadIteratorResponse(
            iterator=_to_iterator(batch.iterator, server),
            messages=call.read(batch.messages),
            end_offset=batch.end_offset,
            next=_to_iterator(batch.following, server),
        )

    @needs(Right.GROUPS_WRITE, "group")
    async def deliver_iterator(self, request: pb.DeliverIteratorRequest, call: Call) -> pb.DeliverIteratorResponse:
        cluster = call.cluster(request.cluster)
        iterator, count = _group_iterator(request.iterator), _count(request.count)
        left_s = await iterators.deliver(
            cluster, request.group, request.client_id, iterator, count, call.timeout_s(cluster)
        )
        return pb.DeliverIteratorResponse(left_ms=int(left_s * 1000))

    @needs(Right.GROUPS_WRITE, "group")
    async def commit_iterator(self, request: pb.CommitIteratorRequest, call: Call) -> pb.CommitIteratorResponse:
        if request.WhichOneof("read") is None:
            raise invalid("count", "missing; set `count` or `delivered`")
        cluster = call.cluster(request.cluster)
        iterator = _group_iterator(request.iterator)
        count = None if request.HasField("delivered") else _count(request.count)
        done = await iterators.commit(
            cluster, request.group, request.client_id, iterator, count, call.timeout_s(cluster)
        )
        return pb.CommitIteratorResponse(position=done.position, next=_to_iterator(done.following))


def _count(count: int) -> int:
    if count < 0:
        raise invalid("count", f"{count} is negative")
    return count


def _group_iterator(iterator: pb.Iterator) -> GroupIterator:
    return iterators.given(
        iterator.topic,
        iterator.partition,
        iterator.token,
        offset=iterator.offset,
        max_messages=iterator.max_messages,
        generation=iterator.generation,
    )


def _to_iterator(iterator: GroupIterator | None, server: Address | None = None) -> pb.Iterator | None:
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
        delivered=row.delivered,
        iterator=_to_iterator(row.iterator),
    )


def _membership(found: IteratorMembership) -> pb.Membership:
    return pb.Membership(
        generation=found.generation,
        settled=found.is_settled,
        heartbeat_interval_ms=int(found.heartbeat_s * 1000),
        session_timeout_ms=int(found.session_s * 1000),
        owned=to_topic_partitions(found.owned),
    )
