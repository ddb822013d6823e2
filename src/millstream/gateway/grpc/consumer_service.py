"""ConsumerService: read as one of a group, by the names of group and consumer alone."""

from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.limits import ReadingLimits
from millstream.gateway.grpc.message_conversion import edge_of, places_told, positions_told
from millstream.gateway.grpc.v1 import consumers_pb2 as pb
from millstream.gateway.operations import group_consumers, iterators
from millstream.gateway.rights import Right


class ConsumerService:
    def __init__(self, reading: ReadingLimits) -> None:
        self._reading = reading

    @needs(Right.MESSAGES_READ, "topic")
    async def poll(self, request: pb.PollRequest, call: Call) -> pb.PollResponse:
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(request.max_messages, request.max_bytes, call.wait_s(wait_s))
        work = group_consumers.poll(
            call.cluster(request.cluster),
            [request.topic],
            request.group,
            request.consumer,
            limits,
            auto_commit=request.auto_commit,
            start=edge_of(request.start, "start"),
        )
        found = await call.waiting(work) or group_consumers.NOTHING
        positions = {where.partition: offset for where, offset in found.positions.items()}
        return pb.PollResponse(messages=call.read(found.messages), next=positions_told(positions))

    @needs(Right.GROUPS_WRITE, "group")
    async def commit(self, request: pb.CommitRequest, call: Call) -> pb.CommitResponse:
        found = await group_consumers.commit(call.cluster(request.cluster), request.group, request.consumer)
        return pb.CommitResponse(offsets=places_told(found))

    @needs(Right.GROUPS_WRITE, "group")
    async def leave(self, request: pb.LeaveRequest, call: Call) -> pb.LeaveResponse:
        cluster = call.cluster(request.cluster)
        await iterators.leave(cluster, request.group, request.consumer, call.timeout_s(cluster))
        return pb.LeaveResponse()
