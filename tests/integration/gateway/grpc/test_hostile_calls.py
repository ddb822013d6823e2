"""Tests gRPC clients that never read, never end a call or speak another protocol: cost is bounded."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from builders.gateways.grpc import failure_of
from builders.gateways.processes import RealGateway, gateway
from millstream.gateway.grpc.v1 import events_pb2 as events
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceStub
from millstream.testing.real_broker import RealBroker

if TYPE_CHECKING:
    from millstream.gateway.grpc.v1.messages_pb2_grpc import MessageServiceAsyncStub

MIB = 2**20
STREAMS = 50
STREAM_BYTES_MAX = 4 * MIB
"""Memory limit of an unread stream: the answer in transit and the next one."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGateway]:
    with (
        RealBroker(tmp_path_factory.mktemp("broker") / "data", flush="os") as broker,
        gateway(broker.bootstrap, "--body-bytes-max", "1MiB", grpc=True) as started,
    ):
        yield started


@asynccontextmanager
async def stub(running: RealGateway) -> AsyncIterator["MessageServiceAsyncStub"]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
        yield MessageServiceStub(channel)


def resident_bytes(running: RealGateway) -> int:
    return int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def put(messages: "MessageServiceAsyncStub", topic: str, value: bytes) -> None:
    await messages.Put(pb.PutRequest(topic=topic, event=events.Event(value=value)))


def test_unread_tails_use_bounded_memory_and_delay_nobody(running: RealGateway) -> None:
    async def story() -> None:
        async with stub(running) as idle, stub(running) as busy:
            for _ in range(40):
                await put(busy, "much", b"x" * 900_000)
            before_bytes = resident_bytes(running)
            request = pb.TailRequest(topic="much", start=events.Start(offset=0), partition=0)
            tails = [idle.Tail(request) for _ in range(STREAMS)]
            for tail in tails:
                assert isinstance(await tail.read(), pb.TailResponse)  # The tail has started; it is never read again.
            for number in range(20):
                await put(busy, "others", b"%d" % number)
            assert resident_bytes(running) - before_bytes < STREAMS * STREAM_BYTES_MAX
            for tail in tails:
                tail.cancel()

    asyncio.run(story())


def test_a_write_stream_with_unread_answers_is_throttled_and_loses_nothing(running: RealGateway) -> None:
    async def story() -> None:
        async with stub(running) as idle, stub(running) as busy:
            before_bytes = resident_bytes(running)
            stream = idle.PutStream()
            written = 0

            async def send() -> None:
                nonlocal written
                while written < 3_000:
                    columns = events.EventColumns(values=[b"x" * 1_000] * 50)
                    await stream.write(pb.PutStreamRequest(topic="written", columns=columns, sequence=written))
                    written += 1
                await stream.done_writing()

            sending = asyncio.create_task(send())
            for number in range(20):
                await put(busy, "others", b"%d" % number)
            assert resident_bytes(running) - before_bytes < 200 * MIB
            offsets = list[int]()
            while isinstance(answer := await stream.read(), pb.PutStreamResponse):
                offsets += answer.offsets
            await sending
            assert offsets == list(range(50 * written))

    asyncio.run(story())


def test_an_oversized_call_is_refused_and_the_connection_stays_open(running: RealGateway) -> None:
    async def story() -> None:
        async with stub(running) as messages:
            with pytest.raises(grpc.RpcError) as caught:
                await put(messages, "large", b"x" * 2 * MIB)
            assert isinstance(caught.value, grpc.aio.AioRpcError)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            with pytest.raises(grpc.RpcError) as refused:
                await put(messages, "a\0b", b"x")
            assert failure_of(refused.value).name == "INVALID_TOPIC"
            await put(messages, "large", b"x")

    asyncio.run(story())


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1_000, b"\0" * 100_000]
)
def test_connections_that_do_not_speak_grpc_delay_nobody(running: RealGateway, data: bytes) -> None:
    async def story() -> None:
        async with stub(running) as messages:
            await put(messages, "others", b"served")

    odd = [socket.create_connection(("127.0.0.1", running.grpc_port), 30) for _ in range(20)]
    try:
        for connection in odd:
            connection.settimeout(30)
            try:
                connection.sendall(data)
            except OSError:
                pass  # The gateway has closed the connection.
        asyncio.run(story())
    finally:
        for connection in odd:
            connection.close()
