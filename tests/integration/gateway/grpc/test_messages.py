"""Tests MessageService: writes in every form, reads, tails and subscriptions."""

import asyncio
from collections.abc import Callable, Iterable

import grpc
import pytest

from builders.gateways.grpc import Served, failure_of, grpc_gateway
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.v1 import events_pb2 as events
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.topics_pb2 import CreateTopicRequest
from millstream.gateway.operations.clusters import ClientFactory
from millstream.model.authorization import Principal
from millstream.model.rights import Right

Unused = Callable[[str], str]

BEGINNING = events.Start(edge=events.EDGE_BEGINNING)


async def create(served: Served, topic: str, partitions: int = 1) -> str:
    await served.topics.CreateTopic(CreateTopicRequest(name=topic, partitions=partitions))
    return topic


def values(messages: Iterable[events.Message]) -> list[bytes]:
    return [message.value for message in messages]


EVENTS = [
    events.Event(value=b"plain", timestamp_ms=1_700_000_000_001),
    events.Event(value=b"", key=b"", timestamp_ms=1_700_000_000_002),
    events.Event(key=b"tombstone", tombstone=True, timestamp_ms=1_700_000_000_003),
    events.Event(value=b"\x00\xff", key=b"\xfe", timestamp_ms=0, partition=1),
    events.Event(
        value=b"rich",
        headers=[events.Header(name="a", value=b"1"), events.Header(name="a"), events.Header(name="b", value=b"")],
        timestamp_ms=1_700_000_000_004,
        hash=2,
        message_id=b"my own",
    ),
]
COLUMNS = events.EventColumns(
    values=[event.value for event in EVENTS],
    keys=[event.key for event in EVENTS],
    timestamps_ms=[event.timestamp_ms for event in EVENTS],
    message_ids=[b"", b"", b"", b"", b"my own"],
    null_values=[2],
    null_keys=[0, 4],
)


@pytest.mark.parametrize("way", ["one by one", "events", "columns", "stream of events", "stream of columns"])
def test_written_messages_are_read_back_with_all_their_fields(bootstrap: str, unused: Unused, way: str) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("whole"), 2)
            acknowledged = await write(served, topic, way)
            request = pb.GetRequest(topic=topic, start=BEGINNING, wait_ms=0, max_messages=100)
            found = (await served.messages.Get(request)).messages
            by_offset = {(message.partition, message.offset): message for message in found}
            assert sorted(by_offset) == sorted((partition, offset) for partition, offset, _ in acknowledged)
            for event, (partition, offset, message_id) in zip(EVENTS, acknowledged, strict=True):
                message = by_offset[partition, offset]
                assert message.message_id == (message_id or message.message_id)
                assert (message.value, message.HasField("value")) == (event.value, event.HasField("value"))
                assert (message.key, message.HasField("key")) == (event.key, event.HasField("key"))
                assert message.timestamp_ms == event.timestamp_ms
                if "columns" not in way:
                    assert list(message.headers) == list(event.headers)
                    assert not event.HasField("partition") or partition == event.partition
                    assert not event.HasField("hash") or partition == event.hash % 2
            assert by_offset[acknowledged[4][:2]].message_id == b"my own"

    asyncio.run(story())


async def write(served: Served, topic: str, way: str) -> list[tuple[int, int, bytes]]:
    """Write all events in this form; partition, offset and message id of each."""
    if way == "one by one":
        places = []
        for event in EVENTS:
            put = await served.messages.Put(pb.PutRequest(topic=topic, event=event))
            assert put.message_id == event.message_id or not event.message_id
            places.append((put.partition, put.offset, put.message_id))
        return places
    columns = COLUMNS if "columns" in way else None
    given = EVENTS if columns is None else []
    acknowledged: pb.PutManyResponse | pb.PutStreamResponse
    if "stream" in way:
        stream = served.messages.PutStream()
        request = pb.PutStreamRequest(topic=topic, events=given, columns=columns, sequence=7, return_message_ids=True)
        await stream.write(request)
        await stream.done_writing()
        (acknowledged,) = [each async for each in stream]
        assert acknowledged.sequence == 7
    else:
        many = pb.PutManyRequest(topic=topic, events=given, columns=columns, return_message_ids=True)
        acknowledged = await served.messages.PutMany(many)
    assert not acknowledged.failures
    return list(zip(acknowledged.partitions, acknowledged.offsets, acknowledged.message_ids, strict=True))


def test_a_retry_with_the_same_message_id_is_stored_once(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served, grpc_gateway(bootstrap) as other:
            topic = await create(served, unused("once"))
            for own_id in (b"order 17", b""):
                first = await served.messages.Put(
                    pb.PutRequest(topic=topic, event=events.Event(value=b"x", message_id=own_id))
                )
                again = events.Event(value=b"x", message_id=first.message_id)
                repeated = await other.messages.Put(pb.PutRequest(topic=topic, event=again))
                assert (first.duplicate, repeated.duplicate) == (False, True)
                assert (repeated.partition, repeated.offset) == (first.partition, first.offset)
            rows = [events.Event(value=b"x", message_id=own_id) for own_id in (b"new", b"order 17")]
            assert list((await served.messages.PutMany(pb.PutManyRequest(topic=topic, events=rows))).duplicates) == [1]
            stream = served.messages.PutStream()
            await stream.write(pb.PutStreamRequest(topic=topic, events=rows))
            await stream.done_writing()
            assert [list(each.duplicates) async for each in stream] == [[0, 1]]
            found = await served.messages.Get(pb.GetRequest(topic=topic, wait_ms=0))
            assert values(found.messages) == [b"x", b"x", b"x"]

    asyncio.run(story())


def test_batches_are_acknowledged_in_order_and_a_failed_one_is_skipped(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap, limits=GrpcLimits(batches=4)) as served:
            topic = await create(served, unused("stream"))
            stream = served.messages.PutStream()

            async def send() -> None:
                for number in range(100):
                    columns = events.EventColumns(values=[b"%d" % (10 * number + row) for row in range(10)])
                    where = "not a topic" if number == 50 else topic
                    await stream.write(pb.PutStreamRequest(topic=where, columns=columns, sequence=number))
                await stream.done_writing()

            sending = asyncio.create_task(send())
            acknowledged = []
            while isinstance(answer := await stream.read(), pb.PutStreamResponse):
                acknowledged.append(answer)
            await sending
            assert [each.sequence for each in acknowledged] == list(range(100))
            bad = acknowledged.pop(50)
            assert [(row.first, row.count, row.error.name) for row in bad.failures] == [(0, 10, "INVALID_TOPIC")]
            assert list(bad.offsets) == [-1] * 10
            assert [offset for each in acknowledged for offset in each.offsets] == list(range(990))
            assert not any(each.failures for each in acknowledged)

    asyncio.run(story())


MISMATCHED = events.EventColumns(values=[b"x", b"y"], keys=[b"k"])


def test_an_invalid_batch_does_not_end_the_write_stream(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("senseless"))
            batches = [events.EventColumns(values=[b"a"]), MISMATCHED, events.EventColumns(values=[b"b"])]
            stream = served.messages.PutStream(
                pb.PutStreamRequest(topic=topic, columns=columns, sequence=number)
                for number, columns in enumerate(batches)
            )
            acknowledged = [answer async for answer in stream]
            assert [(each.sequence, list(each.offsets)) for each in acknowledged] == [(0, [0]), (1, [-1, -1]), (2, [1])]
            (failure,) = acknowledged[1].failures
            assert (failure.first, failure.count, failure.error.name) == (0, 2, "INVALID_REQUEST")

    asyncio.run(story())


def test_batches_before_a_stream_error_are_acknowledged(bootstrap: str, unused: Unused) -> None:
    class Once:
        left = 1

        def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
            self.left -= right is Right.MESSAGES_WRITE
            return self.left >= 0

        def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
            return True

    async def story() -> None:
        async with grpc_gateway(bootstrap, authorizer=Once()) as served:
            topic = await create(served, unused("revoked"))
            columns = events.EventColumns(values=[b"a"])
            stream = served.messages.PutStream(pb.PutStreamRequest(topic=topic, columns=columns) for _ in range(2))
            assert isinstance(first := await stream.read(), pb.PutStreamResponse)
            assert list(first.offsets) == [0]
            with pytest.raises(grpc.RpcError) as caught:
                await stream.read()
            assert failure_of(caught.value).name == "TOPIC_AUTHORIZATION_FAILED"

    asyncio.run(story())


def test_a_write_stream_continues_when_batches_fill_the_producers_buffer(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap, connecting=ClientFactory(held_bytes=100_000)) as served:
            topic = await create(served, unused("full"))
            small, large = (events.EventColumns(values=[b""], keys=[b"k" * size]) for size in (30_000, 80_000))
            batches = [pb.PutStreamRequest(topic=topic, columns=columns) for columns in (small, large) * 10]
            stream = served.messages.PutStream(iter(batches))
            assert [list(answer.offsets) async for answer in stream] == [[number] for number in range(20)]

    asyncio.run(story())


def test_put_many_lists_failed_events_beside_stored_ones(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("partly"), 2)
            rows = [events.Event(value=b"x", partition=number) for number in (0, 1, 7, 7, 1)]
            acknowledged = await served.messages.PutMany(pb.PutManyRequest(topic=topic, events=rows))
            assert [(row.first, row.count, row.error.name) for row in acknowledged.failures] == [
                (2, 2, "UNKNOWN_TOPIC_OR_PARTITION")
            ]
            assert list(acknowledged.partitions) == [0, 1, -1, -1, 1]
            with pytest.raises(grpc.RpcError) as caught:
                await served.messages.PutMany(pb.PutManyRequest(topic=topic, events=rows[2:4]))
            assert failure_of(caught.value).name == "UNKNOWN_TOPIC_OR_PARTITION"

    asyncio.run(story())


BAD = [
    (pb.PutManyRequest(events=[events.Event(value=b"x")], columns=events.EventColumns(values=[b"x"])), "columns"),
    (pb.PutManyRequest(columns=events.EventColumns(values=[b"x"], keys=[b"a", b"b"])), "columns.keys"),
    (pb.PutManyRequest(columns=events.EventColumns(values=[b"x"], null_values=[3])), "columns.null_values"),
    (pb.PutManyRequest(columns=events.EventColumns(values=[b"x"] * 11)), "columns"),
    (pb.PutManyRequest(events=[events.Event(value=b"x", partition=1, hash=1)]), "hash"),
    (pb.PutRequest(event=events.Event(value=b"x", message_id=b"~forged")), "message_id"),
    (pb.PutRequest(), "event.value"),
    (pb.PutRequest(event=events.Event(key=b"k")), "event.value"),
    (pb.PutRequest(event=events.Event(value=b"", tombstone=True)), "event.tombstone"),
    (pb.PutManyRequest(events=[events.Event(value=b""), events.Event(key=b"k")]), "events[1].value"),
    (pb.PutManyRequest(events=[events.Event(value=b"x", tombstone=True)]), "events[0].tombstone"),
    (pb.PutRequest(event=events.Event(tombstone=True)), "event.key"),
    (pb.PutManyRequest(events=[events.Event(value=b""), events.Event(tombstone=True)]), "events[1].key"),
    (pb.PutManyRequest(columns=events.EventColumns(values=[b""], null_values=[0])), "columns.null_values"),
    (pb.PutRequest(event=events.Event(value=b"x", timestamp_ms=1_738_324_800)), "event.timestamp_ms"),
    (
        pb.PutManyRequest(columns=events.EventColumns(values=[b"x"], timestamps_ms=[1_738_324_800])),
        "columns.timestamps_ms",
    ),
    (pb.GetRequest(wait_ms=3_600_000), "wait_ms"),
    (pb.GetRequest(max_messages=-1), "max_messages"),
    (pb.GetRequest(max_bytes=2**31 - 1), "max_bytes"),
    (pb.GetRequest(start=events.Start(offset=-1)), "start"),
    (pb.GetRequest(start=events.Start(edge=77)), "start"),  # type: ignore[arg-type]
    (pb.GetRequest(start=events.Start(timestamp_ms=-1)), "start"),
    (pb.FindOffsetsRequest(position=events.Start(offset=3)), "position"),
]


@pytest.mark.parametrize(("request_", "field"), BAD)
def test_an_invalid_message_request_names_the_field(
    bootstrap: str, unused: Unused, request_: pb.GetRequest, field: str
) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap, limits=GrpcLimits(events=10)) as served:
            request_.topic = await create(served, unused("bad"))
            method = getattr(served.messages, type(request_).__name__.removesuffix("Request"))
            with pytest.raises(grpc.RpcError) as caught:
                await method(request_)
            failure = failure_of(caught.value)
            assert failure.status is grpc.StatusCode.INVALID_ARGUMENT
            assert failure.field == field

    asyncio.run(story())


def test_a_poll_waits_for_the_next_message_and_returns_the_next_position(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("poll"), 3)
            place = (await served.messages.Get(pb.GetRequest(topic=topic, wait_ms=0))).next
            for number in range(6):
                request = pb.GetRequest(topic=topic, start=events.Start(offsets=place), wait_ms=60_000)
                poll = asyncio.ensure_future(served.messages.Get(request))
                event = events.Event(value=b"%d" % number, partition=number % 3)
                await served.messages.Put(pb.PutRequest(topic=topic, event=event))
                found = await poll
                assert values(found.messages) == [b"%d" % number]
                place = found.next
            beyond = pb.GetRequest(topic=topic, partition=0, start=events.Start(offset=3), wait_ms=60_000)
            poll = asyncio.ensure_future(served.messages.Get(beyond))
            for value in (b"reached", b"beyond"):
                await served.messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=value, partition=0)))
            assert values((await poll).messages) == [b"beyond"]

    asyncio.run(story())


def test_a_poll_answers_before_its_deadline(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("deadline"))
            found = await served.messages.Get(pb.GetRequest(topic=topic, wait_ms=60_000), timeout=1)
            assert values(found.messages) == []
            assert [row.offset for row in found.next.offsets] == [0]

    asyncio.run(story())


def test_a_removed_offset_is_refused_and_a_time_finds_the_next_message(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("gone"))
            rows = [events.Event(value=b"%d" % number, timestamp_ms=1_000 * number) for number in range(10)]
            for row in rows:
                await served.messages.Put(pb.PutRequest(topic=topic, event=row))
            late = pb.GetRequest(topic=topic, start=events.Start(timestamp_ms=7_500), wait_ms=0)
            assert values((await served.messages.Get(late)).messages) == [b"8", b"9"]
            found = await served.messages.FindOffsets(
                pb.FindOffsetsRequest(topic=topic, position=events.Start(timestamp_ms=7_500))
            )
            assert [(row.offset, row.timestamp_ms) for row in found.offsets] == [(8, 8_000)]
            before = [events.PartitionOffset(partition=0, offset=4)]
            deleted = await served.messages.DeleteMessages(pb.DeleteMessagesRequest(topic=topic, before=before))
            assert list(deleted.first) == before
            with pytest.raises(grpc.RpcError) as caught:
                await served.messages.Get(pb.GetRequest(topic=topic, start=events.Start(offset=1), wait_ms=0))
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("OUT_OF_RANGE", "OFFSET_OUT_OF_RANGE")
            first = await served.messages.Get(pb.GetRequest(topic=topic, start=BEGINNING, max_messages=1))
            assert values(first.messages) == [b"4"]

    asyncio.run(story())


@pytest.mark.parametrize("partition", [None, 1])
def test_a_tail_returns_existing_messages_and_then_new_ones(
    bootstrap: str, unused: Unused, partition: int | None
) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic = await create(served, unused("tail"), 2)

            async def put(value: bytes) -> None:
                await served.messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=value, partition=1)))

            await put(b"before")
            tail = served.messages.Tail(pb.TailRequest(topic=topic, partition=partition, start=BEGINNING))
            latest = served.messages.Tail(pb.TailRequest(topic=topic, partition=partition))
            begun = await latest.read()
            assert isinstance(begun, pb.TailResponse)
            assert {row.partition: row.offset for row in begun.next.offsets}[1] == 1
            await put(b"after")
            read: list[bytes] = []
            while read != [b"before", b"after"]:
                answer = await tail.read()
                assert isinstance(answer, pb.TailResponse)
                read += values(answer.messages)
            answer = await latest.read()
            assert isinstance(answer, pb.TailResponse)
            assert values(answer.messages) == [b"after"]
            tail.cancel()
            latest.cancel()

    asyncio.run(story())


def test_a_subscription_pushes_one_window_until_it_is_committed(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            topic, group = await create(served, unused("pushed")), unused("group")
            for number in range(20):
                await served.messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=b"%d" % number)))
            start = pb.SubscribeStart(
                topics=[topic], start=BEGINNING, group=group, window_messages=5, share_percent=100
            )
            stream = served.messages.Subscribe()
            await stream.write(pb.SubscribeRequest(start=start))
            read: list[bytes] = []
            committed = outstanding = 0
            while len(read) < 20 or outstanding:
                answer = await stream.read()
                assert isinstance(answer, pb.SubscribeResponse)
                if answer.HasField("batch"):
                    read += values(answer.batch.messages)
                    outstanding += len(answer.batch.messages)
                    assert outstanding <= 5
                    if outstanding == 5:
                        place = events.TopicPartitionOffset(topic=topic, offset=answer.batch.next_offset)
                        await stream.write(pb.SubscribeRequest(commit=pb.SubscribeCommit(offsets=[place])))
                        outstanding = 0
                elif answer.HasField("committed"):
                    committed += 1
            await stream.done_writing()
            while isinstance(answer := await stream.read(), pb.SubscribeResponse):
                committed += answer.HasField("committed")
            assert read == [b"%d" % number for number in range(20)]
            assert committed == 4
            again = served.messages.Subscribe()
            await again.write(pb.SubscribeRequest(start=start))
            await served.messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=b"next")))
            assert isinstance(await again.read(), pb.SubscribeResponse)
            answer = await again.read()
            assert isinstance(answer, pb.SubscribeResponse)
            assert values(answer.batch.messages) == [b"next"]
            again.cancel()

    asyncio.run(story())


async def all_of(stream: grpc.aio.StreamStreamCall[pb.SubscribeRequest, pb.SubscribeResponse]) -> None:
    while isinstance(await stream.read(), pb.SubscribeResponse):
        pass


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([pb.SubscribeRequest(commit=pb.SubscribeCommit())], "start"),
        ([pb.SubscribeRequest(start=pb.SubscribeStart())], "start.topics"),
        (
            [
                pb.SubscribeRequest(start=pb.SubscribeStart(topics=["there"])),
                pb.SubscribeRequest(start=pb.SubscribeStart(topics=["there"])),
            ],
            "commit",
        ),
        (
            [
                pb.SubscribeRequest(start=pb.SubscribeStart(topics=["there"])),
                pb.SubscribeRequest(
                    commit=pb.SubscribeCommit(offsets=[events.TopicPartitionOffset(topic="elsewhere")])
                ),
            ],
            "commit.offsets",
        ),
    ],
)
def test_a_misused_subscription_names_the_wrong_field(
    bootstrap: str, requests: list[pb.SubscribeRequest], field: str
) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            await served.topics.CreateTopic(CreateTopicRequest(name="there", exist_ok=True))
            stream = served.messages.Subscribe()
            for request in requests:
                await stream.write(request)
            with pytest.raises(grpc.RpcError) as caught:
                await all_of(stream)
            assert failure_of(caught.value).field == field

    asyncio.run(story())
