"""The network, handed in: listening and connecting with asyncio's protocol classes."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from millstream.seams.machine import machine_id

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listening(Protocol):
    """An open listening socket."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int:
        """The port in use; tells which one was given when 0 was asked for."""
        ...

    def close(self) -> None:
        """Stop accepting; connections that exist go on."""
        ...


class Network(Protocol):
    """Makes connections. Both calls raise OSError when the address cannot be had."""

    @property
    def machine(self) -> str:
        """Names the machine that it is on; "" where there is none, or its name is not known."""
        ...

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening: ...

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        """Connect, and give the protocol that `factory` made after its `connection_made`."""
        ...


class _TcpListening:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """Real sockets on the running event loop."""

    @property
    def machine(self) -> str:
        return machine_id()

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=1024, reuse_address=True)
        return _TcpListening(server)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        _, protocol = await asyncio.get_running_loop().create_connection(factory, host, port)
        return protocol
