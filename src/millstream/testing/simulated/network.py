"""Simulates a network in memory: named hosts, connections between them, and their faults.

A block stops all traffic in one direction, from host A to host B. A new connection needs both directions. On an open
connection, the other direction continues to work, as in TCP (`transport.py`).

Each machine has its own loopback and wildcard addresses. Any other address belongs to one machine. It is either an
address on which this machine listens, or the name of the machine. A wildcard listener accepts connections to the name
of its machine.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from contextvars import Context, copy_context
from enum import Enum
from random import Random
from typing import NamedTuple

from millstream.seams.network import Listening, ProtocolFactory
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.trace import Trace
from millstream.testing.simulated.transport import Conditions, SimulatedTransport, SimulatedWire

CONNECT_TIMEOUT_S = 20.0
_FIRST_PORT = 40_000
_WILDCARDS = ("", "0.0.0.0", "::")
_LOOPBACKS = ("127.0.0.1", "::1", "localhost")


class Direction(Enum):
    """The direction of a block, relative to the host that is named first."""

    BOTH = "both ways"
    OUTGOING = "from the host"
    INCOMING = "to the host"


class _Connection(NamedTuple):
    hosts: tuple[str, str]
    ends: tuple[SimulatedTransport, SimulatedTransport]

    def touches(self, host: str, other: str | None) -> bool:
        return host in self.hosts and (other is None or other in self.hosts)


class _Listening:
    def __init__(self, network: "SimulatedNetwork", name: str, factory: ProtocolFactory, host: str, port: int) -> None:
        self._network = network
        self.name = name
        self.factory = factory
        self.host = host
        self.port = port
        self.is_wildcard = host in _WILDCARDS
        self.is_loopback = host in _LOOPBACKS
        self.context: Context = copy_context()
        self.owner: SimulatedOwner | None = OWNER.get()

    def close(self) -> None:
        self._network.forget(self)

    def conflicts(self, other: "_Listening") -> bool:
        """Return True if both cannot be open at once."""
        if self.port != other.port:
            return False
        if self.name != other.name and (self.is_local or other.is_local):
            return False
        return self.host == other.host or self.is_wildcard or other.is_wildcard

    @property
    def is_local(self) -> bool:
        """True if the address means another machine on each machine."""
        return self.is_wildcard or self.is_loopback

    def accepts(self, client: str, host: str, port: int) -> bool:
        """Return True for a connection from the machine `client` to this address."""
        if port != self.port:
            return False
        if host in _LOOPBACKS or host in _WILDCARDS:
            return client == self.name and self.is_local
        return host == self.host or (self.is_wildcard and host == self.name)


class HostNetwork:
    """The `Network` of one host, which brokers and clients use."""

    machine = ""
    """Empty, because no other process can open the files of this machine."""

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
        loop: SimulatedLoop,
        random: Random,
        *,
        conditions: Conditions | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._loop = loop
        self._random = random
        self._trace = trace or Trace()
        self._listening: list[_Listening] = []
        self._connections: list[_Connection] = []
        self._connection_count = 0
        self._next_port = _FIRST_PORT
        self._blocked: list[tuple[str | None, str | None]] = []
        """Blocked pairs of sender and receiver; None means any other host."""
        self._refusing: set[str] = set()
        self.conditions = conditions or Conditions()

    def host(self, name: str) -> HostNetwork:
        """The network as seen by the processes of one host."""
        return HostNetwork(self, name)

    # Faults

    def cut(self, host: str, other: str | None = None) -> int:
        """Break every connection of a host, or between two hosts. Both ends notice it later. Return the number."""
        cut = 0
        for connection in self._connections_of(host, other):
            cut += 1
            for end in connection.ends:
                self._loop.call_later(self.conditions.delay(self._random), end.cut, context=Context())
        return cut

    def block(self, host: str, other: str | None = None, direction: Direction = Direction.BOTH) -> None:
        """Drop everything silently between a host and another one (or all others) until `unblock`.

        Bytes wait at their sender. Connection attempts time out, even if only one direction is blocked.
        """
        self._blocked += _rules(host, other, direction)
        for connection in self._connections_of(host, other):
            self._apply_blocks(connection)

    def unblock(self, host: str, other: str | None = None, direction: Direction = Direction.BOTH) -> None:
        """Remove a block. Waiting bytes continue."""
        for rule in _rules(host, other, direction):
            self._blocked.remove(rule)
        for connection in self._connections_of(host, other):
            self._apply_blocks(connection)
            for end in connection.ends:
                end.kick()

    def refuse(self, host: str) -> None:
        """Refuse new connections to a host until `accept`."""
        self._refusing.add(host)

    def accept(self, host: str) -> None:
        self._refusing.discard(host)

    def vanish(self, host: str, *, silent: bool) -> None:
        """End all processes on a host; `silent` as in `process_gone`."""
        self._gone(lambda name, _: name == host, silent=silent)

    def process_gone(self, owner: SimulatedOwner, *, silent: bool) -> None:
        """End a process's connections: its peers see a reset at once or, if `silent`, an error some seconds later.

        A silent end is like a power cut.
        """
        self._gone(lambda _, owns: owns is owner, silent=silent)

    def _gone(self, is_gone: Callable[[str, SimulatedOwner | None], bool], *, silent: bool) -> None:
        for listening in list(self._listening):
            if is_gone(listening.name, listening.owner):
                self.forget(listening)
        for connection in self._open_connections():
            ends = list(zip(connection.hosts, connection.ends, strict=True))
            gone = [end for host, end in ends if is_gone(host, end.owner)]
            for end in gone:
                end.vanish(announce=not silent)
            for end in connection.ends:
                if gone and silent and end not in gone:
                    self._loop.call_later(1 + 10 * self._random.random(), end.cut, context=Context())

    # Called by hosts

    def listen(self, name: str, factory: ProtocolFactory, host: str, port: int) -> Listening:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        listening = _Listening(self, name, factory, host, port)
        if any(listening.conflicts(other) for other in self._listening):
            raise OSError(errno.EADDRINUSE, f"{host}:{port}: {os.strerror(errno.EADDRINUSE)}")
        self._listening.append(listening)
        return listening

    def forget(self, listening: _Listening) -> None:
        if listening in self._listening:
            self._listening.remove(listening)

    async def connect(self, name: str, factory: ProtocolFactory, host: str, port: int) -> asyncio.BaseProtocol:
        """Connect as TCP does: after a delay the result is a connection, a refusal, or a timeout."""
        await asyncio.sleep(self.conditions.delay(self._random))
        listening = next((each for each in self._listening if each.accepts(name, host, port)), None)
        target = listening.name if listening is not None else host
        if self._is_blocked(name, target) or self._is_blocked(target, name):
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
        self._connections.append(_Connection((name, listening.name), (client, server)))
        self._trace.note(self._loop.true_time(), "connect", wire.name)
        return client, server

    def _open_connections(self) -> list[_Connection]:
        self._connections = [one for one in self._connections if not all(end.is_lost for end in one.ends)]
        return list(self._connections)

    def _connections_of(self, host: str, other: str | None) -> list[_Connection]:
        return [one for one in self._open_connections() if one.touches(host, other)]

    def _is_blocked(self, sender: str, receiver: str) -> bool:
        return sender != receiver and any(a in (None, sender) and b in (None, receiver) for a, b in self._blocked)

    def _apply_blocks(self, connection: _Connection) -> None:
        (near, far), (client, server) = connection.hosts, connection.ends
        client.set_blocked(self._is_blocked(near, far))
        server.set_blocked(self._is_blocked(far, near))


def _rules(host: str, other: str | None, direction: Direction) -> list[tuple[str | None, str | None]]:
    outgoing: tuple[str | None, str | None] = (host, other)
    incoming: tuple[str | None, str | None] = (other, host)
    return {
        Direction.BOTH: [outgoing, incoming],
        Direction.OUTGOING: [outgoing],
        Direction.INCOMING: [incoming],
    }[direction]


def _begin(listening: _Listening, server: SimulatedTransport) -> None:
    if not server.is_lost:
        server.begin(listening.factory())
