"""Checks over real sockets that large responses arrive in large parts and completely."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from millstream.seams.receive_pace import LARGE_BYTES, WAKE_BYTES, Pace


class Receiver(asyncio.BufferedProtocol):
    """Receives responses of known sizes in sequence, as a connection does."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.received: list[bytes] = []
        self.least: list[int] = []
        self.over = asyncio.get_running_loop().create_future()
        self._left = list(sizes)
        self._answer = bytearray()
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pace = Pace(transport)
        self._socket = transport.get_extra_info("socket")
        self._begin()

    def _begin(self) -> None:
        self._answer = bytearray(self._left.pop(0)) if self._left else bytearray(1)
        self._filled = 0
        # A connection must read a part of a response before it knows its size.
        self._pace.set(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        end = len(self._answer) if self._filled else 1
        return memoryview(self._answer)[self._filled : end]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._pace.set(len(self._answer) - self._filled)
        self.least.append(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
        if self._filled == len(self._answer):
            self.received.append(bytes(self._answer))
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(exc)


def receive(sizes: Sequence[int], pieces: Sequence[bytes]) -> Receiver:
    """Receive responses of these sizes from a broker that sends these pieces and then closes the connection."""
    return asyncio.run(_receive(sizes, pieces))


async def _receive(sizes: Sequence[int], pieces: Sequence[bytes]) -> Receiver:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        _, receiver = await asyncio.get_running_loop().create_connection(lambda: Receiver(sizes), *address)
        async with asyncio.timeout(60):
            assert await receiver.over is None
    return receiver


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("piece_bytes", [1000, 100_000, 10_000_000])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 100, 2),
        (LARGE_BYTES, LARGE_BYTES + 1, LARGE_BYTES + 2),
        (WAKE_BYTES, WAKE_BYTES + 1, WAKE_BYTES + LARGE_BYTES, 3),
        (5 * WAKE_BYTES + 7, 10, 3 * WAKE_BYTES),
    ],
)
def test_every_response_arrives_whole_however_it_is_split(sizes: Sequence[int], piece_bytes: int) -> None:
    answers = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    receiver = receive(sizes, cut(b"".join(answers), piece_bytes))
    assert receiver.received == answers


def test_the_wake_threshold_never_exceeds_the_missing_bytes() -> None:
    size = 3 * WAKE_BYTES + 10
    receiver = receive([size], cut(bytes(size), 10_000))
    assert receiver.least[0] == WAKE_BYTES
    assert receiver.least[-1] == 1


def test_a_connection_closed_within_a_response_is_detected() -> None:
    receiver = receive([3 * WAKE_BYTES], [bytes(WAKE_BYTES + 1000)])
    assert receiver.received == []
