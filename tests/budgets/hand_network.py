"""Provides a network without sockets: a peer's bytes go directly into the broker's buffers, and writes are counted.

A read returns everything that the peer has sent, as with a busy broker and a large kernel buffer. So only the broker
determines the number of reads per request.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from millstream.seams.network import Listening, ProtocolFactory

Piece = bytes | bytearray | memoryview


@dataclass(slots=True)
class SocketCounts:
    reads: int = 0
    writes: int = 0
    buffers: list[tuple[object, int]] = field(default_factory=list)
    """The object behind each receive buffer and the number of bytes read into it, recorded while `keeps` is set."""
    keeps: bool = False


class HandTransport(asyncio.Transport):
    """Accepts all writes at once; `answers` holds the written objects themselves, not copies."""

    def __init__(self, counts: SocketCounts, seen: Callable[[], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.answers: list[Piece] = []
        self._counts = counts
        self._seen = seen
        self._is_closing = False

    def write(self, data: Any) -> None:
        self._counts.writes += 1
        self.answers.append(data)
        self._seen()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._counts.writes += 1
        self.answers += list_of_data
        self._seen()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close


class HandPeer:
    """One manually driven connection."""

    def __init__(self, factory: ProtocolFactory, counts: SocketCounts, seen: Callable[[], None]) -> None:
        self.transport = HandTransport(counts, seen)
        self._counts = counts
        self._protocol = cast(asyncio.BufferedProtocol, factory())
        self._protocol.connection_made(self.transport)

    @property
    def answers(self) -> list[Piece]:
        return self.transport.answers

    def send(self, data: bytes | memoryview) -> None:
        """Send data, and let the broker read until it has read everything."""
        counts, protocol, left = self._counts, self._protocol, memoryview(data)
        while left:
            buffer = memoryview(cast(bytearray, protocol.get_buffer(-1)))
            size = min(len(buffer), len(left))
            buffer[:size] = left[:size]
            counts.reads += 1
            if counts.keeps:
                counts.buffers.append((buffer.obj, size))
            buffer.release()
            protocol.buffer_updated(size)
            left = left[size:]

    def pause(self) -> None:
        """Signal the broker to pause writing, as with a full send buffer."""
        self._protocol.pause_writing()

    def resume(self) -> None:
        self._protocol.resume_writing()

    def hang_up(self) -> None:
        self.transport.close()
        self._protocol.connection_lost(None)


class _HandListening:
    host = "127.0.0.1"
    port = 9092

    def close(self) -> None:
        pass


class HandNetwork:
    """A `Network` that keeps the listener's protocol factory; `dial` opens a connection."""

    machine = ""

    def __init__(self, counts: SocketCounts, seen: Callable[[], None]) -> None:
        self._counts = counts
        self._seen = seen
        self._factory: ProtocolFactory | None = None

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        self._factory = factory
        return _HandListening()

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        raise ConnectionRefusedError("the broker calls nobody here")

    def dial(self) -> HandPeer:
        assert self._factory is not None, "the broker listens"
        return HandPeer(self._factory, self._counts, self._seen)
