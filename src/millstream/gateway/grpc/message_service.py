"""Implements MessageService: writes, reads, tails, push subscriptions, offsets and message deletion."""

from collections.abc import AsyncIterator

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, Write, needs, shutting_down
from millstream.gateway.grpc.limits import GrpcLimits, ReadingLimits
from millstream.gateway.grpc.message_conversion import (
    begin,
    columns_of,
    columns_of_event,
    edge_of,
    offsets_of,
    to_partition_offsets,
)
from millstream.gateway.grpc.put_stream import PutStream, to_failures
from millstream.gateway.grpc.subscription_call import SubscriptionCall
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.events_pb2 import PartitionOffset
from millstream.gateway.operations import topics
from millstream.gateway.operations.reads import ReadMessages, TopicReader, check_time_ms
from millstream.gateway.operations.writes import write, write_one
from millstream.model.rights import Right
from millstream.model.start_words import FOLLOW_START, READ_START


class MessageService:
    def __init__(self, limits: GrpcLimits, reading: ReadingLimits) -> None:
        self._limits = limits
        self._reading = reading

    # Writing.

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put(self, request: pb.PutRequest, call: Call) -> pb.PutResponse:
        cluster = call.cluster(request.cluster)
        member = await cluster.home(request.topic)
        columns = columns_of_event(request.topic, request.event)
        written = await write_one(member, columns, call.timeout_s(cluster))
        call.traffic.events_written += written.stored
        for failure in written.failures.values():
            raise failure
        return pb.PutResponse(
            partition=written.partitions[0],
            offset=written.offsets[0],
            message_id=written.message_ids[0],
            duplicate=0 in written.duplicates,
        )

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put_many(self, request: pb.PutManyRequest, call: Call) -> pb.PutManyResponse:
        cluster = call.cluster(request.cluster)
        member = await cluster.home(request.topic)
        columns = columns_of(request.topic, request.events, request.columns, self._limits.events)
        written = await write(member, columns, call.timeout_s(cluster), with_ids=request.return_message_ids)
        call.traffic.events_written += written.stored
        if written.failures and len(written.failures) == len(columns):
            raise written.failures[0]
        return pb.PutManyResponse(
            partitions=written.partitions,
            offsets=written.offsets,
            message_ids=written.message_ids if request.return_message_ids else (),
            failures=to_failures(written.failures),
            duplicates=written.duplicates,
        )

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put_stream(self, requests: AsyncIterator[pb.PutStreamRequest], call: Call, answer: Write) -> None:
        await PutStream(call, self._limits, answer).run(requests)

    # Reading.

    @needs(Right.MESSAGES_READ, "topic")
    async def get(self, request: pb.GetRequest, call: Call) -> pb.GetResponse:
        reader = await TopicReader.open(call.cluster(request.cluster), request.topic)
        partition = request.partition if request.HasField("partition") else None
        positions = await begin(reader, request.start, partition, READ_START)
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(
            request.max_messages,
            max_bytes=request.max_bytes,
            wait_s=call.wait_s(wait_s),
            skip_bad_batches=request.skip_bad_batches,
        )
        found = await call.waiting(reader.read(positions, limits)) or ReadMessages([], positions)
        return pb.GetResponse(messages=call.read(found.messages), next=to_partition_offsets(found.positions))

    @needs(Right.MESSAGES_READ, "topic")
    async def tail(self, request: pb.TailRequest, call: Call, answer: Write) -> None:
        reader = await TopicReader.open(call.cluster(request.cluster), request.topic)
        partition = request.partition if request.HasField("partition") else None
        positions = await begin(reader, request.start, partition, FOLLOW_START)
        limits = self._reading.of(
            request.max_messages,
            max_bytes=request.max_bytes,
            wait_s=self._reading.wait_s,
            skip_bad_batches=request.skip_bad_batches,
        )
        read = reader.follow if partition is None else reader.read
        await answer(pb.TailResponse(next=to_partition_offsets(positions)))
        while True:
            found = await call.waiting(read(positions, limits))
            if found is None:
                raise shutting_down()
            positions = found.positions
            if found.messages:
                response = pb.TailResponse(messages=call.read(found.messages), next=to_partition_offsets(positions))
                await answer(response)

    @needs(Right.MESSAGES_READ, "topics", within="start")
    async def subscribe(self, requests: AsyncIterator[pb.SubscribeRequest], call: Call, answer: Write) -> None:
        await SubscriptionCall(call, answer).run(requests)

    # Offsets.

    @needs(Right.MESSAGES_READ, "topic")
    async def find_offsets(self, request: pb.FindOffsetsRequest, call: Call) -> pb.FindOffsetsResponse:
        cluster = call.cluster(request.cluster)
        kind = request.position.WhichOneof("position")
        if kind not in ("edge", "timestamp_ms"):
            raise invalid("position", "set `edge` or `timestamp_ms` (an offset is not accepted here)")
        given = request.position
        is_edge = kind == "edge"
        position = edge_of(given.edge, "position") if is_edge else check_time_ms(given.timestamp_ms, "position")
        found = await topics.find_offsets(
            cluster, request.topic, list(request.partitions), position, call.timeout_s(cluster)
        )
        rows = [
            pb.FoundOffset(partition=number, offset=row.offset, timestamp_ms=row.timestamp_ms)
            for number, row in sorted(found.items())
        ]
        return pb.FindOffsetsResponse(offsets=rows)

    @needs(Right.TOPICS_ADMIN, "topic")
    async def delete_messages(self, request: pb.DeleteMessagesRequest, call: Call) -> pb.DeleteMessagesResponse:
        cluster = call.cluster(request.cluster)
        before = offsets_of(request.before, "before")
        found = await topics.delete_messages(cluster, request.topic, before, call.timeout_s(cluster))
        rows = [PartitionOffset(partition=number, offset=offset) for number, offset in sorted(found.items())]
        return pb.DeleteMessagesResponse(first=rows)
