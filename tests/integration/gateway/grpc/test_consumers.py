"""Tests ConsumerService and IteratorService with calls that alternate between gateways."""

import asyncio
from collections.abc import Callable

import grpc
import pytest

from builders.gateways.grpc import Served, failure_of, grpc_gateway
from millstream.gateway.grpc.v1 import consumers_pb2, events_pb2, iterators_pb2
from millstream.gateway.grpc.v1.messages_pb2 import PutManyRequest, PutRequest
from millstream.gateway.grpc.v1.topics_pb2 import CreateTopicRequest

Unused = Callable[[str], str]
ASSIGNED = consumers_pb2.AssignedPartition


async def filled(served: Served, topic: str, count: int, partitions: int = 1) -> None:
    await served.topics.CreateTopic(CreateTopicRequest(name=topic, partitions=partitions))
    rows = [events_pb2.Event(value=b"%d" % number, partition=number % partitions) for number in range(count)]
    await served.messages.PutMany(PutManyRequest(topic=topic, events=rows))


def test_a_consumer_polls_and_commits_through_two_gateways(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic, group = unused("shared"), unused("group")
        async with grpc_gateway(bootstrap) as one, grpc_gateway(bootstrap) as other:
            await filled(one, topic, 30)

            async def poll(served: Served, *, auto_commit: bool = False) -> list[bytes]:
                request = consumers_pb2.PollRequest(
                    group=group, consumer="a", topic=topic, max_messages=10, wait_ms=10_000, auto_commit=auto_commit
                )
                return [message.value for message in (await served.consumers.Poll(request)).messages]

            first = [b"%d" % number for number in range(10)]
            assert await poll(one) == first
            assert await poll(other) == first
            done = await one.consumers.Commit(consumers_pb2.CommitRequest(group=group, consumer="a"))
            assert [(row.topic, row.partition, row.offset) for row in done.offsets] == [(topic, 0, 10)]
            assert await poll(other) == [b"%d" % number for number in range(10, 20)]
            assert await poll(one, auto_commit=True) == [b"%d" % number for number in range(20, 30)]
            await other.consumers.Commit(consumers_pb2.CommitRequest(group=group, consumer="a"))
            waiting = asyncio.create_task(poll(one))
            await other.messages.Put(PutRequest(topic=topic, event=events_pb2.Event(value=b"next")))
            assert await waiting == [b"next"]
            await other.consumers.Leave(consumers_pb2.LeaveRequest(group=group, consumer="a"))
            with pytest.raises(grpc.RpcError) as caught:
                await one.consumers.Commit(consumers_pb2.CommitRequest(group=group, consumer="a"))
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("FAILED_PRECONDITION", "UNKNOWN_MEMBER_ID")

    asyncio.run(story())


def test_a_poll_reports_assigned_partitions_and_lag(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic, group = unused("assigned"), unused("group")
        async with grpc_gateway(bootstrap) as one, grpc_gateway(bootstrap) as other:
            await filled(one, topic, 10)

            async def poll(served: Served, consumer: str) -> consumers_pb2.PollResponse:
                request = consumers_pb2.PollRequest(
                    group=group, consumer=consumer, topic=topic, max_messages=4, wait_ms=1_000
                )
                return await served.consumers.Poll(request)

            first = await poll(one, "a")
            assert (len(first.messages), list(first.assigned)) == (4, [ASSIGNED(partition=0, lag=6)])
            without = await poll(other, "b")
            assert (len(without.messages), list(without.assigned)) == (0, [])
            for left in (2, 0):
                await one.consumers.Commit(consumers_pb2.CommitRequest(group=group, consumer="a"))
                assert list((await poll(other, "a")).assigned) == [ASSIGNED(partition=0, lag=left)]
            await one.consumers.Commit(consumers_pb2.CommitRequest(group=group, consumer="a"))
            idle = await poll(one, "a")
            assert (len(idle.messages), list(idle.assigned)) == (0, [ASSIGNED(partition=0, lag=0)])

    asyncio.run(story())


def test_an_iterator_is_read_delivered_and_committed_and_the_next_one_is_issued(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        topic, group = unused("iterated"), unused("group")
        async with grpc_gateway(bootstrap) as one, grpc_gateway(bootstrap) as other:
            await filled(one, topic, 10)
            names = {"group": group, "client_id": "a"}
            joined = await one.iterators.JoinGroup(iterators_pb2.JoinGroupRequest(group=group, client_id="a"))
            assert joined.membership.session_timeout_ms > joined.membership.heartbeat_interval_ms > 0
            found = await _iterator(other, group, topic, 4)
            assert f"{found.host}:{found.port}" == bootstrap
            heartbeat = await one.iterators.Heartbeat(iterators_pb2.HeartbeatRequest(group=group, client_id="a"))
            assert [(row.topic, row.partition) for row in heartbeat.membership.owned] == [(topic, 0)]
            found.host, found.port = "example.invalid", 1  # The gateway ignores this address.
            batch = await other.iterators.ReadIterator(iterators_pb2.ReadIteratorRequest(iterator=found))
            assert [message.value for message in batch.messages] == [b"0", b"1", b"2", b"3"]
            assert (batch.iterator.offset, batch.end_offset, batch.next.offset) == (0, 4, 4)
            handing = iterators_pb2.DeliverIteratorRequest(iterator=batch.iterator, count=3, group=group, client_id="a")
            assert (await one.iterators.DeliverIterator(handing)).left_ms > 0
            listed = await other.iterators.ListIterators(iterators_pb2.ListIteratorsRequest(**names))
            assert [(row.topic, row.partition, row.delivered) for row in listed.iterators] == [(topic, 0, 3)]
            commit = iterators_pb2.CommitIteratorRequest(
                iterator=listed.iterators[0].iterator, delivered=True, group=group, client_id="a"
            )
            done = await other.iterators.CommitIterator(commit)
            assert (done.position, done.next.offset) == (3, 3)
            with pytest.raises(grpc.RpcError) as caught:
                await one.iterators.CommitIterator(
                    iterators_pb2.CommitIteratorRequest(iterator=done.next, group=group, client_id="a")
                )
            assert failure_of(caught.value).field == "count"
            for count in (4, 3):
                done = await one.iterators.CommitIterator(
                    iterators_pb2.CommitIteratorRequest(iterator=done.next, count=count, group=group, client_id="a")
                )
            waiting = asyncio.ensure_future(
                one.iterators.ReadIterator(iterators_pb2.ReadIteratorRequest(iterator=done.next, wait_ms=20_000))
            )
            await other.messages.Put(PutRequest(topic=topic, event=events_pb2.Event(value=b"next")))
            assert [message.value for message in (await waiting).messages] == [b"next"]
            done.next.token = b"forged"
            with pytest.raises(grpc.RpcError) as caught:
                await one.iterators.ReadIterator(iterators_pb2.ReadIteratorRequest(iterator=done.next))
            assert failure_of(caught.value).name == "INVALID_ITERATOR"
            await one.iterators.LeaveGroup(iterators_pb2.LeaveGroupRequest(group=group, client_id="a"))
            with pytest.raises(grpc.RpcError) as caught:
                await one.iterators.Heartbeat(iterators_pb2.HeartbeatRequest(group=group, client_id="a"))
            assert failure_of(caught.value).name == "UNKNOWN_MEMBER_ID"

    asyncio.run(story())


async def _iterator(served: Served, group: str, topic: str, max_messages: int) -> iterators_pb2.Iterator:
    """Request an iterator until the client owns the partition."""
    request = iterators_pb2.GetIteratorRequest(group=group, client_id="a", topic=topic, max_messages=max_messages)
    while True:
        try:
            return (await served.iterators.GetIterator(request)).iterator
        except grpc.RpcError as error:
            if failure_of(error).name != "NOT_OWNER":
                raise
