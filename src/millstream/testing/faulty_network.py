"""Wraps real sockets with faults that a test switches on and off."""

import asyncio
from typing import Any, cast

from millstream.seams.network import Listening, Network, ProtocolFactory, TcpNetwork


class NetworkFaults:
    """The switches of the faults, for the test's thread. They affect the broker's side of each connection."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_refusing = False
        self._open: dict[asyncio.Transport, None] = {}

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def cut(self) -> None:
        """Abort every open connection. Clients may connect again."""
        loop = self._loop
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._cut(), loop).result()

    def refuse(self) -> None:
        """Abort every connection, and each new one at once, until `heal`."""
        self._is_refusing = True
        self.cut()

    def heal(self) -> None:
        """Switch off all faults."""
        self._is_refusing = False

    # Called by the network, on its event loop.

    def attach(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._open.clear()

    def opened(self, transport: asyncio.Transport) -> None:
        if self._is_refusing:
            transport.abort()
            return
        self._open[transport] = None

    def closed(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)

    def end_connections(self) -> None:
        for transport in list(self._open):
            transport.abort()

    async def _cut(self) -> None:
        self.end_connections()


class FaultyNetwork:
    """A `Network` with faults on its listening side."""

    def __init__(self, faults: NetworkFaults, network: Network | None = None) -> None:
        self._faults = faults
        self._network = network or TcpNetwork()
        self.machine = self._network.machine
        self._listening: list[Listening] = []

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        listening = await self._network.listen(lambda: self._watched(factory()), host, port)
        self._listening.append(listening)
        return listening

    def stop_listening(self) -> None:
        for listening in self._listening:
            listening.close()

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        return await self._network.connect(factory, host, port)

    def _watched(self, protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """Return the same protocol with changed callbacks, which report its connection and its end to the faults."""
        faults = self._faults
        made, lost = protocol.connection_made, protocol.connection_lost
        transports: list[asyncio.Transport] = []

        def connection_made(transport: asyncio.BaseTransport) -> None:
            transports.append(cast(asyncio.Transport, transport))
            made(transport)
            faults.opened(transports[0])

        def connection_lost(error: Exception | None) -> None:
            for transport in transports:
                faults.closed(transport)
            lost(error)

        watched = cast(Any, protocol)
        watched.connection_made, watched.connection_lost = connection_made, connection_lost
        return protocol
