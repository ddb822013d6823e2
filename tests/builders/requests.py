"""Encodes requests, and provides a peer that sends arbitrary bytes and records the responses."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar, cast

from millstream.seams.network import Network
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.framing import SIZE, SIZE_BYTES, frame_request, read_correlation_id, read_response_header
from millstream.wire.messages import key_of, read_response, write_request
from millstream.wire.schema_readers import Fields

T = TypeVar("T")


def framed(payload: bytes) -> bytes:
    """Frame any bytes."""
    return SIZE.pack(len(payload)) + payload


def request_frame(
    api: str,
    version: int,
    fields: Fields | None = None,
    *,
    correlation_id: int = 1,
    body: Sequence[bytes | bytearray | memoryview] | None = None,
    client_id: str | None = "test",
) -> bytes:
    """Encode a whole request from its schema, or with a given body."""
    pieces = [write_request(api, version, fields or {})] if body is None else body
    return b"".join(
        frame_request(
            api, key_of(api), version=version, correlation_id=correlation_id, client_id=client_id, body=pieces
        )
    )


class RawPeer(asyncio.Protocol):
    """A peer of a connection that the test controls."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_lost = False
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    @classmethod
    async def connect(cls, network: Network, host: str, port: int) -> "RawPeer":
        peer = await network.connect(cls, host, port)
        assert isinstance(peer, cls)
        return peer

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._news.set()

    def send(self, *data: bytes) -> None:
        self.transport.write(b"".join(data))

    def close(self) -> None:
        self.transport.close()

    async def frame(self) -> memoryview:
        """Return the next whole frame, without its size; ConnectionError if the connection has ended."""
        while True:
            if len(self.received) >= SIZE_BYTES:
                (size,) = SIZE.unpack_from(self.received)
                if len(self.received) >= SIZE_BYTES + size:
                    frame = bytes(self.received[SIZE_BYTES : SIZE_BYTES + size])
                    del self.received[: SIZE_BYTES + size]
                    return memoryview(frame)
            if self.is_lost:
                raise ConnectionError("the connection is over")
            self._news.clear()
            await self._news.wait()

    async def lost(self) -> None:
        """Wait until the broker has closed the connection."""
        while not self.is_lost:
            self._news.clear()
            await self._news.wait()

    async def ask_raw(self, api: str, version: int, body: Sequence[bytes | bytearray | memoryview]) -> memoryview:
        """Send a request with this body and return the response's body."""
        self._correlation_id += 1
        self.send(request_frame(api, version, correlation_id=self._correlation_id, body=body))
        frame = await self.frame()
        assert read_correlation_id(frame) == self._correlation_id
        return frame[read_response_header(api, version, frame)[1] :]

    async def ask(self, api: str, version: int, fields: Fields | None = None) -> Fields:
        """Send a request and return its response."""
        body = await self.ask_raw(api, version, [write_request(api, version, fields or {})])
        return read_response(api, version, body, 0)


def in_simulation(test: Callable[[SimulatedNetwork], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a test in simulated time; an error reported by the event loop fails it."""
    loop = SimulatedLoop()
    try:
        result = loop.run_until_complete(test(SimulatedNetwork(loop, Random(seed))))
        assert loop.failures == []
        return result
    finally:
        loop.end()
