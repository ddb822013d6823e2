"""A network in memory: hosts with names, connections between them, and everything that goes wrong with those."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextvars import Context, copy_context
from random import Random

from millstream.seams.network import Listening, ProtocolFactory
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.transport import Conditions, SimulatedTransport, SimulatedWire
from millstream.testing.simulation.trace import Trace

CONNECT_TIMEOUT_S = 20.0
_FIRST_PORT = 40_000


class _Connection:
    def __init__(
        self, wire: SimulatedWire, hosts: tuple[str, str], ends: tuple[SimulatedTransport, SimulatedTransport]
    ) -> None:
        self.wire = wire
        self.hosts = hosts
        self.ends = ends

    def touches(self, host: str, other: str | None) -> bool:
        return host in self.hosts and (other is None or other in self.hosts)


class _Listening:
    def __init__(self, network: "SimulatedNetwork", name: str, factory: ProtocolFactory, host: str, port: int) -> None:
        self._network = network
        self.name = name
        self.factory = factory
        self.host = host
        self.port = port
        self.context: Context = copy_context()
        self.owner: SimulatedOwner | None = OWNER.get()

    def close(self) -> None:
        self._network.forget(self)


class HostNetwork:
    """The `Network` of one host; what a broker or a client is handed."""

    machine = ""
    """Its files are nobody else's."""

    def __init__(self, network: "SimulatedNetwork", name: str) -> None:
        self._network = network
        self.name = name

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        return self._network.listen(self.name, factory, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        return await self._network.connect(self.name, factory, host, port)


class SimulatedNetwork:
    """All hosts and connections of one simulation."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        *,
        conditions: Conditions | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._loop = loop
        self._random = random
        self._trace = trace or Trace()
        self._listening: dict[tuple[str, int], _Listening] = {}
        self._connections: list[_Connection] = []
        self._connection_count = 0
        self._next_port = _FIRST_PORT
        self._blocked: list[tuple[str, str | None]] = []
        self._refusing: set[str] = set()
        self.conditions = conditions or Conditions()

    def host(self, name: str) -> HostNetwork:
        """The network as the processes of one host see it."""
        return HostNetwork(self, name)

    # Faults

    def cut(self, host: str, other: str | None = None) -> int:
        """Break every connection of a host (or between two); both ends hear of it, each in its time. How many."""
        cut = 0
        for connection in self._connections_of(host, other):
            cut += 1
            for end in connection.ends:
                self._loop.call_later(self.conditions.delay(self._random), end.cut, context=Context())
        return cut

    def block(self, host: str, other: str | None = None) -> None:
        """Make a black hole: bytes and new connections vanish into it until `unblock`; nobody is told."""
        self._blocked.append((host, other))
        for connection in self._connections_of(host, other):
            connection.wire.blocked = True

    def unblock(self, host: str, other: str | None = None) -> None:
        """Lift a block; what was waiting goes on its way."""
        self._blocked.remove((host, other))
        for connection in self._connections_of(host, other):
            connection.wire.blocked = self._is_blocked(*connection.hosts)
            for end in connection.ends:
                end.kick()

    def refuse(self, host: str) -> None:
        """Refuse new connections to a host until `accept`."""
        self._refusing.add(host)

    def accept(self, host: str) -> None:
        self._refusing.discard(host)

    def vanish(self, host: str, *, silent: bool) -> None:
        """The process on a host is gone. Its peers are reset; at once, or, as after a power cut, some seconds later."""
        for listening in list(self._listening.values()):
            if listening.name == host:
                self.forget(listening)
        for connection in self._connections_of(host, None):
            gone, left = connection.ends if connection.hosts[0] == host else reversed(connection.ends)
            gone.vanish(announce=not silent)
            if silent:
                self._loop.call_later(1 + 10 * self._random.random(), left.cut, context=Context())

    # What hosts do

    def listen(self, name: str, factory: ProtocolFactory, host: str, port: int) -> Listening:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if (host, port) in self._listening:
            raise OSError(errno.EADDRINUSE, f"{host}:{port}: {os.strerror(errno.EADDRINUSE)}")
        listening = _Listening(self, name, factory, host, port)
        self._listening[host, port] = listening
        return listening

    def forget(self, listening: _Listening) -> None:
        if self._listening.get((listening.host, listening.port)) is listening:
            del self._listening[listening.host, listening.port]

    async def connect(self, name: str, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        """Connect as TCP does: after a moment there is a connection, a refusal, or a long silence."""
        await asyncio.sleep(self.conditions.delay(self._random))
        listening = self._listening.get((host, port))
        target = listening.name if listening is not None else host
        if self._is_blocked(name, target):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port}: {os.strerror(errno.ETIMEDOUT)}")
        if listening is None or target in self._refusing:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port}: {os.strerror(errno.ECONNREFUSED)}")
        client, server = self._pair(name, listening)
        self._loop.call_later(self.conditions.delay(self._random), _begin, listening, server, context=listening.context)
        protocol = factory()
        client.begin(protocol)
        return protocol

    def _pair(self, name: str, listening: _Listening) -> tuple[SimulatedTransport, SimulatedTransport]:
        self._connection_count += 1
        number = self._connection_count
        wire = SimulatedWire(
            self._loop, self._random, self.conditions, self._trace, f"{name}>{listening.name}#{number}"
        )
        near, far = (name, 1024 + number % 60_000), (listening.host, listening.port)
        client = SimulatedTransport(wire, copy_context(), "client", {"peername": far, "sockname": near})
        server = SimulatedTransport(wire, listening.context.copy(), "server", {"peername": near, "sockname": far})
        client.connect_to(server)
        server.connect_to(client)
        self._connections.append(_Connection(wire, (name, listening.name), (client, server)))
        self._trace.note(self._loop.time(), "connect", wire.name)
        return client, server

    def _connections_of(self, host: str, other: str | None) -> Iterator[_Connection]:
        self._connections = [one for one in self._connections if not all(end.is_lost for end in one.ends)]
        return (one for one in list(self._connections) if one.touches(host, other))

    def _is_blocked(self, host: str, other: str) -> bool:
        return any((a == host and b in (None, other)) or (a == other and b in (None, host)) for a, b in self._blocked)


def _begin(listening: _Listening, server: SimulatedTransport) -> None:
    if not server.is_lost:
        server.begin(listening.factory())
