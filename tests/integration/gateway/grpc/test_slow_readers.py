"""Tests clients that do not read their answers: unread answers count as held memory and are bounded."""

import asyncio
import socket
import struct
from collections.abc import Callable

import grpc
import pytest

from builders.gateways.grpc import HOST, Served, failure_of, grpc_gateway
from millstream.gateway.budget import Budget
from millstream.gateway.grpc.v1 import events_pb2, messages_pb2
from millstream.model.errors import MillstreamError

Unused = Callable[[str], str]

SETTINGS, HEADERS, DATA = 4, 1, 0
END_HEADERS, END_STREAM = 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: str, value: str) -> bytes:
    """A header field as a literal, without a table entry."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def lazy_call(port: int, method: str, message: bytes) -> socket.socket:
    """Make a call whose answer is never read. What exceeds the first flow-control window stays with the server."""
    head = {":method": "POST", ":scheme": "http", ":path": method, ":authority": HOST}
    head |= {"content-type": "application/grpc", "te": "trailers"}
    connection = socket.create_connection((HOST, port))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
    connection.sendall(frame(HEADERS, END_HEADERS, 1, b"".join(field(*each) for each in head.items())))
    connection.sendall(frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
    return connection


class WatchedBudget(Budget):
    """A budget that counts refusals and lets a test wait for a change."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.refused = 0
        self._changed = asyncio.Event()

    def take(self, size_bytes: int, own_bytes: int = 0, *, is_refusable: bool = True) -> None:
        self._changed.set()
        try:
            super().take(size_bytes, own_bytes=own_bytes, is_refusable=is_refusable)
        except MillstreamError:
            self.refused += 1
            raise

    def give_back(self, size_bytes: int) -> None:
        super().give_back(size_bytes)
        self._changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        while not what():
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.parametrize("method", ["Get", "Tail"])
def test_unread_answers_are_bounded_and_further_reads_are_refused(bootstrap: str, unused: Unused, method: str) -> None:
    async def story() -> None:
        topic, budget = unused("lazy"), WatchedBudget(4_000_000)
        async with grpc_gateway(bootstrap, budget=budget) as served:
            rows = [events_pb2.Event(value=b"x" * 100_000) for _ in range(9)]
            await served.messages.PutMany(messages_pb2.PutManyRequest(topic=topic, events=rows))
            await budget.until(lambda: budget.held_bytes == 0)
            start = events_pb2.Start(edge=events_pb2.EDGE_BEGINNING)
            if method == "Get":
                request = messages_pb2.GetRequest(topic=topic, start=start).SerializeToString()
            else:
                request = messages_pb2.TailRequest(topic=topic, start=start).SerializeToString()
            path = f"/millstream_api.v1.MessageService/{method}"
            lazy = [lazy_call(served.server.port, path, request) for _ in range(8)]
            try:
                await budget.until(lambda: budget.held_bytes > 2_500_000 and budget.refused == 5)
                with pytest.raises(grpc.RpcError) as caught:
                    await _get(served, topic)
                assert (caught.value.code(), failure_of(caught.value).name) == (
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    "GATEWAY_FULL",
                )
                put = messages_pb2.PutRequest(topic=topic, event=events_pb2.Event(value=b"y"))
                assert (await served.messages.Put(put)).offset == 9
                assert budget.held_bytes < 3_100_000
            finally:
                for each in lazy:
                    each.close()
            await budget.until(lambda: budget.held_bytes == 0)
            assert len((await _get(served, topic)).messages) == 10

    asyncio.run(story())


async def _get(served: Served, topic: str) -> messages_pb2.GetResponse:
    found: messages_pb2.GetResponse = await served.messages.Get(messages_pb2.GetRequest(topic=topic))
    return found
