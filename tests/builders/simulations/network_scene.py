"""Provides a server and its clients on a simulated network."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulated.transport import Conditions, SimulatedTransport

Body = Callable[["NetworkScene"], Coroutine[Any, Any, None]]


class Collector(asyncio.Protocol):
    """Records all protocol events; with `echo` it sends received bytes back."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.data = b""
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.lost: asyncio.Event = asyncio.Event()
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(len(data))
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc
        self.lost.set()


class NetworkScene:
    """A server on host `server` and the network around it."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, Random(seed), conditions=Conditions(pieces_chance=0.5))
        self.accepted: list[Collector] = []
        self.echo = True

    def make(self) -> Collector:
        protocol = Collector(self.echo)
        self.accepted.append(protocol)
        return protocol

    async def connect(self, host: str = "client") -> Collector:
        protocol = await self.network.host(host).connect(Collector, "server.example", 9092)
        assert isinstance(protocol, Collector)
        return protocol

    async def run(self, body: Body) -> None:
        await self.network.host("server").listen(self.make, "server.example", 9092)
        await body(self)


def run(scene: NetworkScene, body: Body) -> None:
    scene.loop.run_until_complete(scene.run(body))
