"""Tests the gRPC server: rights, limits, reflection, health checks and draining."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from builders.gateways.grpc import Served, failure_of, grpc_gateway
from millstream.gateway.draining import Draining
from millstream.gateway.grpc.limits import GrpcLimits
from millstream.gateway.grpc.server import services, start_grpc
from millstream.gateway.grpc.v1 import events_pb2 as events
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.topics_pb2 import CreateTopicRequest, DescribeTopicRequest, ListTopicsRequest
from millstream.gateway.operations.cluster_create import NoSupervisor
from millstream.gateway.operations.clusters import ServedClusters
from millstream.model.authorization import Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.rights import Right

T = TypeVar("T")
Unused = Callable[[str], str]


class Watched(Draining):
    """Draining that lets a test wait for a number of waiting calls."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._changed = asyncio.Condition()

    async def waiting(self, work: Coroutine[Any, Any, T]) -> T | None:
        await self._add(1)
        try:
            return await super().waiting(work)
        finally:
            await asyncio.shield(self._add(-1))

    async def _add(self, number: int) -> None:
        async with self._changed:
            self._count += number
            self._changed.notify_all()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(120), self._changed:
            await self._changed.wait_for(lambda: self._count == count)


class Strict:
    """An authorizer that denies writes and records every check."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        assert principal.host
        self.asked.append((right.value, cluster, resource))
        return right is not Right.MESSAGES_WRITE

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        return True


def test_every_request_of_a_call_is_authorized_before_it_runs(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        authorizer = Strict()
        topic = unused("guarded")
        async with grpc_gateway(bootstrap, authorizer=authorizer) as served:
            await served.topics.CreateTopic(CreateTopicRequest(name=topic))
            put = pb.PutRequest(topic=topic, event=events.Event(value=b"x"))
            with pytest.raises(grpc.RpcError) as caught:
                await served.messages.Put(put)
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("PERMISSION_DENIED", "TOPIC_AUTHORIZATION_FAILED")
            stream = served.messages.PutStream()
            await stream.write(pb.PutStreamRequest(topic=topic, cluster="default", events=[put.event]))
            with pytest.raises(grpc.RpcError) as caught:
                await stream.read()
            assert failure_of(caught.value).name == "TOPIC_AUTHORIZATION_FAILED"
            subscription = served.messages.Subscribe()
            await subscription.write(pb.SubscribeRequest(start=pb.SubscribeStart(topics=[topic, topic], group="g")))
            assert isinstance(await subscription.read(), pb.SubscribeResponse)
            subscription.cancel()
            found = await served.messages.Get(pb.GetRequest(topic=topic, wait_ms=0))
            assert not found.messages
        assert authorizer.asked == [
            ("topics:write", "default", topic),
            ("messages:write", "default", topic),
            ("messages:write", "default", topic),
            ("messages:read", "default", topic),
            ("messages:read", "default", topic),
            ("groups:write", "default", "g"),
            ("messages:read", "default", topic),
        ]

    asyncio.run(story())


def test_reflection_lists_every_service_and_method(bootstrap: str) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast("grpc.Channel", served.channel))
            wanted = {descriptor.full_name: descriptor for descriptor in services(GrpcLimits(), NoSupervisor())}
            questions = [reflection_pb2.ServerReflectionRequest(list_services="")]
            questions += [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in wanted]
            answers = [each async for each in stub.ServerReflectionInfo(iter(questions))]
            listed = {row.name for row in answers[0].list_services_response.service}
            assert listed == {
                *wanted,
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            }
            for descriptor, answer in zip(wanted.values(), answers[1:], strict=True):
                assert descriptor.file.serialized_pb in list(answer.file_descriptor_response.file_descriptor_proto)

    asyncio.run(story())


def test_health_is_serving_for_every_service_until_the_gateway_is_stopped(bootstrap: str) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            stub: Any = health_pb2_grpc.HealthStub(cast("grpc.Channel", served.channel))
            for name in ("", "millstream_api.v1.MessageService"):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            stopping = asyncio.create_task(served.server.stop(30))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
            await stopping

    asyncio.run(story())


def test_draining_ends_streams_and_polls_with_shutting_down(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        draining = Watched()
        async with grpc_gateway(bootstrap, draining=draining) as served:
            topic = unused("drained")
            await served.topics.CreateTopic(CreateTopicRequest(name=topic))
            tail = served.messages.Tail(pb.TailRequest(topic=topic))
            assert isinstance(await tail.read(), pb.TailResponse)
            subscription = served.messages.Subscribe()
            await subscription.write(pb.SubscribeRequest(start=pb.SubscribeStart(topics=[topic])))
            assert isinstance(await subscription.read(), pb.SubscribeResponse)
            stream = served.messages.PutStream()
            request = pb.PutStreamRequest(topic=topic, events=[events.Event(value=b"x")])
            await stream.write(request)
            assert isinstance(await stream.read(), pb.PutStreamResponse)
            poll = asyncio.ensure_future(
                served.messages.Get(
                    pb.GetRequest(topic=topic, start=events.Start(edge=events.EDGE_LATEST), wait_ms=60_000)
                )
            )
            await draining.until(4)
            stopping = asyncio.create_task(served.server.stop(60))
            assert not (await poll).messages
            for call in (tail, subscription, stream):
                with pytest.raises(grpc.RpcError) as caught:
                    await until_over(call)
                failure = failure_of(caught.value)
                assert (failure.status.name, failure.name) == ("UNAVAILABLE", "SHUTTING_DOWN")
            await stopping

    asyncio.run(story())


async def until_over(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def test_a_request_over_the_size_limit_is_refused(bootstrap: str) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap, limits=GrpcLimits(request_bytes=10_000)) as served:
            event = events.Event(value=bytes(20_000))
            with pytest.raises(grpc.RpcError) as caught:
                await served.messages.Put(pb.PutRequest(topic="x", event=event))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(story())


def test_an_undecodable_request_is_refused_as_invalid_request(bootstrap: str) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            raw: Any = served.channel.unary_unary("/millstream_api.v1.TopicService/ListTopics")
            with pytest.raises(grpc.RpcError) as caught:
                await raw(b"\xff\xff\xff")
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("INVALID_ARGUMENT", "INVALID_REQUEST")

    asyncio.run(story())


def test_an_unexpected_exception_is_logged_and_its_details_are_hidden(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with grpc_gateway(bootstrap) as served:
            monkeypatch.setattr("millstream.gateway.operations.topics.describe_topic", None)
            with pytest.raises(grpc.RpcError) as caught:
                await served.topics.DescribeTopic(DescribeTopicRequest(topic="x"))
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("INTERNAL", "UNKNOWN_SERVER_ERROR")
            assert "NoneType" not in failure.text

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert "NoneType" in caplog.text


def test_a_cancelled_call_stops_waiting(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        draining = Watched()
        async with grpc_gateway(bootstrap, draining=draining) as served:
            topic = unused("cancelled")
            await served.topics.CreateTopic(CreateTopicRequest(name=topic))
            poll = served.messages.Get(pb.GetRequest(topic=topic, wait_ms=60_000))
            await draining.until(1)
            poll.cancel()
            await draining.until(0)

    asyncio.run(story())


def test_an_unreachable_broker_is_reported_within_the_deadline() -> None:
    async def story() -> None:
        async with grpc_gateway("127.0.0.1:1") as served:
            with pytest.raises(grpc.RpcError) as caught:
                await served.topics.ListTopics(ListTopicsRequest())
            failure = failure_of(caught.value)
            assert (failure.status.name, failure.name) == ("UNAVAILABLE", "NETWORK_EXCEPTION")
            with pytest.raises(grpc.RpcError) as caught:
                await served.topics.ListTopics(ListTopicsRequest(), timeout=0.5)
            assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)

    asyncio.run(story())


def test_a_port_in_use_is_address_unavailable() -> None:
    async def story() -> None:
        async with grpc_gateway("127.0.0.1:1") as served:
            with pytest.raises(MillstreamError) as caught:
                await start_grpc(ServedClusters({}), host="127.0.0.1", port=served.server.port)
            assert caught.value.code is ErrorCode.ADDRESS_UNAVAILABLE
            assert "--grpc-port" in caught.value.detail

    asyncio.run(story())


def test_many_waiting_polls_all_wake_on_one_message(bootstrap: str, unused: Unused) -> None:
    async def story() -> None:
        draining = Watched()
        async with grpc_gateway(bootstrap, draining=draining) as served:
            topic = unused("crowd")
            await served.topics.CreateTopic(CreateTopicRequest(name=topic))
            polls = [_poll(served, topic) for _ in range(300)]
            await draining.until(300)
            assert served.server.calls_under_way == 300
            await served.messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=b"news")))
            for poll in polls:
                assert [message.value for message in (await poll).messages] == [b"news"]
            assert served.server.calls_under_way == 0

    asyncio.run(story())


def _poll(served: Served, topic: str) -> "asyncio.Future[pb.GetResponse]":
    return asyncio.ensure_future(served.messages.Get(pb.GetRequest(topic=topic, wait_ms=60_000)))
