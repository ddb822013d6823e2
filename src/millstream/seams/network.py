"""Defines the injected network, which listens and connects with asyncio's protocol classes."""

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
        """The port in use. If port 0 was requested, it is the assigned one."""
        ...

    def close(self) -> None:
        """Stop accepting connections. Open connections continue."""
        ...


class Network(Protocol):
    """Opens listening sockets and connections. Both calls raise OSError if the address is not available."""

    @property
    def machine(self) -> str:
        """The id of the machine that this process runs on, or "" if it is unknown."""
        ...

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening: ...

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        """Connect, and return the protocol that `factory` created, after its `connection_made`."""
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
