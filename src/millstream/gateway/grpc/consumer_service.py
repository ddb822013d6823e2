"""Implements ConsumerService: consuming in a group by naming only the group and the consumer."""

from millstream.gateway.grpc.call_handling import Call, needs
from millstream.gateway.grpc.limits import ReadingLimits
from millstream.gateway.grpc.message_conversion import edge_of, to_partition_offsets, to_topic_partition_offsets
from millstream.gateway.grpc.v1 import consumers_pb2 as pb
from millstream.gateway.operations import group_consumers, iterators
from millstream.model.rights import Right
from millstream.model.start_words import GROUP_START


class ConsumerService:
    def __init__(self, reading: ReadingLimits) -> None:
        self._reading = reading

    @needs(Right.MESSAGES_READ, "topic")
    async def poll(self, request: pb.PollRequest, call: Call) -> pb.PollResponse:
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(
            request.max_messages,
            max_bytes=request.max_bytes,
            wait_s=call.wait_s(wait_s),
            skip_bad_batches=request.skip_bad_batches,
        )
        work = group_consumers.poll(
            call.cluster(request.cluster),
            [request.topic],
            request.group,
            request.consumer,
            limits,
            auto_commit=request.auto_commit,
            start=edge_of(request.start, "start", GROUP_START),
        )
        found = await call.waiting(work) or group_consumers.NOTHING
        positions = {where.partition: offset for where, offset in found.positions.items()}
        assigned = [pb.AssignedPartition(partition=row.where.partition, lag=row.lag) for row in found.assigned or ()]
        return pb.PollResponse(
            messages=call.read(found.messages), next=to_partition_offsets(positions), assigned=assigned
        )

    @needs(Right.GROUPS_WRITE, "group")
    async def commit(self, request: pb.CommitRequest, call: Call) -> pb.CommitResponse:
        found = await group_consumers.commit(call.cluster(request.cluster), request.group, request.consumer)
        return pb.CommitResponse(offsets=to_topic_partition_offsets(found))

    @needs(Right.GROUPS_WRITE, "group")
    async def leave(self, request: pb.LeaveRequest, call: Call) -> pb.LeaveResponse:
        cluster = call.cluster(request.cluster)
        await iterators.leave(cluster, request.group, request.consumer, call.timeout_s(cluster))
        return pb.LeaveResponse()
