"""Callers of gRPC who never end, never read, or speak something else: their cost is bounded, and others are served."""

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
"""What one that is not read may cost: an answer that is on its way, and the next."""


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


def test_tails_that_nobody_reads_hold_little_and_keep_nobody_waiting(running: RealGateway) -> None:
    async def story() -> None:
        async with stub(running) as idle, stub(running) as busy:
            for _ in range(40):
                await put(busy, "much", b"x" * 900_000)
            before_bytes = resident_bytes(running)
            request = pb.TailRequest(topic="much", start=events.Start(offset=0), partition=0)
            tails = [idle.Tail(request) for _ in range(STREAMS)]
            for tail in tails:
                assert isinstance(await tail.read(), pb.TailResponse)  # It has begun, and is never read again.
            for number in range(20):
                await put(busy, "others", b"%d" % number)
            assert resident_bytes(running) - before_bytes < STREAMS * STREAM_BYTES_MAX
            for tail in tails:
                tail.cancel()

    asyncio.run(story())


def test_a_stream_of_writes_whose_answers_nobody_reads_is_held_back_and_loses_nothing(running: RealGateway) -> None:
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
            told = list[int]()
            while isinstance(answer := await stream.read(), pb.PutStreamResponse):
                told += answer.offsets
            await sending
            assert told == list(range(50 * written))

    asyncio.run(story())


def test_a_call_that_is_too_large_is_refused_by_name_and_the_connection_goes_on(running: RealGateway) -> None:
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
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1_000, b"\0" * 100_000]
)
def test_who_speaks_something_else_keeps_nobody_waiting(running: RealGateway, said: bytes) -> None:
    async def story() -> None:
        async with stub(running) as messages:
            await put(messages, "others", b"served")

    odd = [socket.create_connection(("127.0.0.1", running.grpc_port), 30) for _ in range(20)]
    try:
        for connection in odd:
            connection.settimeout(30)
            try:
                connection.sendall(said)
            except OSError:
                pass  # It was ended already.
        asyncio.run(story())
    finally:
        for connection in odd:
            connection.close()
