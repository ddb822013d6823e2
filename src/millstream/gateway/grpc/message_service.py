"""MessageService: messages are written and read."""

from collections.abc import AsyncIterator

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, Write, needs, shutting_down
from millstream.gateway.grpc.limits import GrpcLimits, ReadingLimits
from millstream.gateway.grpc.message_conversion import begin, columns_of, edge_of, offsets_of, positions_told
from millstream.gateway.grpc.put_stream import PutStream, failures_told
from millstream.gateway.grpc.subscription_call import SubscriptionCall
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.events_pb2 import PartitionOffset
from millstream.gateway.operations import topics
from millstream.gateway.operations.reads import BEGINNING, LATEST, ReadMessages, TopicReader
from millstream.gateway.operations.writes import write, write_one
from millstream.gateway.rights import Right


class MessageService:
    def __init__(self, limits: GrpcLimits, reading: ReadingLimits) -> None:
        self._limits = limits
        self._reading = reading

    # Writing.

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put(self, request: pb.PutRequest, call: Call) -> pb.PutResponse:
        cluster = call.cluster(request.cluster)
        member = await cluster.home(request.topic)
        columns = columns_of(request.topic, [request.event], pb.PutManyRequest().columns, 1)
        written = await write_one(member, columns, call.timeout_s(cluster))
        call.traffic.events_written += written.stored
        for failure in written.failures.values():
            raise failure
        return pb.PutResponse(
            partition=written.partitions[0], offset=written.offsets[0], message_id=written.message_ids[0]
        )

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put_many(self, request: pb.PutManyRequest, call: Call) -> pb.PutManyResponse:
        cluster = call.cluster(request.cluster)
        member = await cluster.home(request.topic)
        columns = columns_of(request.topic, request.events, request.columns, self._limits.events)
        written = await write(member, columns, call.timeout_s(cluster), with_ids=request.tell_message_ids)
        call.traffic.events_written += written.stored
        if written.failures and len(written.failures) == len(columns):
            raise written.failures[0]
        return pb.PutManyResponse(
            partitions=written.partitions,
            offsets=written.offsets,
            message_ids=written.message_ids if request.tell_message_ids else (),
            failures=failures_told(written.failures),
        )

    @needs(Right.MESSAGES_WRITE, "topic")
    async def put_stream(self, requests: AsyncIterator[pb.PutStreamRequest], call: Call, answer: Write) -> None:
        await PutStream(call, self._limits, answer).run(requests)

    # Reading.

    @needs(Right.MESSAGES_READ, "topic")
    async def get(self, request: pb.GetRequest, call: Call) -> pb.GetResponse:
        reader = await TopicReader.open(call.cluster(request.cluster), request.topic)
        partition = request.partition if request.HasField("partition") else None
        positions = await begin(reader, request.start, partition, BEGINNING)
        wait_s = self._reading.wait_of(request.wait_ms if request.HasField("wait_ms") else None)
        limits = self._reading.of(request.max_messages, request.max_bytes, call.wait_s(wait_s))
        found = await call.waiting(reader.read(positions, limits)) or ReadMessages([], positions)
        return pb.GetResponse(messages=call.read(found.messages), next=positions_told(found.positions))

    @needs(Right.MESSAGES_READ, "topic")
    async def tail(self, request: pb.TailRequest, call: Call, answer: Write) -> None:
        reader = await TopicReader.open(call.cluster(request.cluster), request.topic)
        partition = request.partition if request.HasField("partition") else None
        positions = await begin(reader, request.start, partition, LATEST)
        limits = self._reading.of(request.max_messages, request.max_bytes, self._reading.wait_s)
        read = reader.follow if partition is None else reader.read
        await answer(pb.TailResponse(next=positions_told(positions)))
        while True:
            found = await call.waiting(read(positions, limits))
            if found is None:
                raise shutting_down()
            positions = found.positions
            if found.messages:
                told = pb.TailResponse(messages=call.read(found.messages), next=positions_told(positions))
                await answer(told)

    @needs(Right.MESSAGES_READ, "topics", within="start")
    async def subscribe(self, requests: AsyncIterator[pb.SubscribeRequest], call: Call, answer: Write) -> None:
        await SubscriptionCall(call, answer).run(requests)

    # Places.

    @needs(Right.MESSAGES_READ, "topic")
    async def find_offsets(self, request: pb.FindOffsetsRequest, call: Call) -> pb.FindOffsetsResponse:
        cluster = call.cluster(request.cluster)
        kind = request.place.WhichOneof("place")
        if kind not in ("edge", "timestamp_ms"):
            raise invalid("place", "an edge or a time is looked for")
        place = edge_of(request.place.edge, "place") if kind == "edge" else request.place.timestamp_ms
        found = await topics.find_offsets(
            cluster, request.topic, list(request.partitions), place, call.timeout_s(cluster)
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
