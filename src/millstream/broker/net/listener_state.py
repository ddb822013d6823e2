"""Holds the state that the connections of one listener share."""

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct, field

from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.net.connection_timer import ConnectionTimer
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.peer_log import PeerLog
from millstream.broker.net.receiver import StagingBuffer
from millstream.seams.workers import Workers


class Counters(Struct):
    """Counters of the listener, for the metrics page."""

    requests: int = 0
    connections_accepted: int = 0
    connections_cut: int = 0
    connections_refused: int = 0


DESCRIPTORS_RESERVED = 32
_RESERVED_MAX = 256
_RESERVED_DIVISOR = 8
_CONNECTIONS_DIVISOR = 4


def connections_max(*, descriptors_max: int, log_files_max: int) -> int:
    """Return how many client connections may be open, given the limits of all files and of log files.

    The log files may be opened later, so they count as open. The reserve is for the operator port, the catalog,
    directories, and connections that are accepted and not refused yet.
    """
    reserved = max(DESCRIPTORS_RESERVED, min(descriptors_max // _RESERVED_DIVISOR, _RESERVED_MAX))
    return max(descriptors_max // _CONNECTIONS_DIVISOR, descriptors_max - log_files_max - reserved)


class OpenConnection(Protocol):
    """The part of a connection that the listener uses."""

    def is_slow(self, now: float) -> bool: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...

    def cut_for_memory(self) -> None: ...


class OpenConnections:
    """The open connections, in the order in which they were opened."""

    def __init__(self) -> None:
        self._open: dict[OpenConnection, None] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(list(self._open))

    def add(self, peer: OpenConnection) -> None:
        self._open[peer] = None
        self._emptied.clear()

    def remove(self, peer: OpenConnection) -> None:
        self._open.pop(peer, None)
        if not self._open:
            self._emptied.set()

    async def wait_until_empty(self) -> None:
        await self._emptied.wait()


class ListenerState(Struct):
    table: DispatchTable
    memory: MemoryLimits
    peers: PeerLog
    workers: Workers
    staging: StagingBuffer = field(default_factory=StagingBuffer)
    watch: ConnectionTimer = field(default_factory=ConnectionTimer)
    counters: Counters = field(default_factory=Counters)
    connections: OpenConnections = field(default_factory=OpenConnections)
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    """Running tasks. They are referenced here because the event loop keeps no references to them."""
    descriptors_max: int = 0
    """The limit of open files of the process; 0: unknown."""
    connections_max: int = 0
    """The number of connections that leave enough file descriptors to log files; unused if the limit is unknown."""

    def lacks_descriptors(self, transport: asyncio.BaseTransport) -> bool:
        """True if a new connection uses a file descriptor that is reserved for other files.

        The kernel assigns the lowest free number, so a high number means that nearly all descriptors are in use.
        """
        if not self.descriptors_max:
            return False
        if len(self.connections) >= self.connections_max:
            return True
        socket = transport.get_extra_info("socket")
        return socket is not None and socket.fileno() >= self.descriptors_max - DESCRIPTORS_RESERVED

    def refused(self, peer: str) -> None:
        """Count and log a connection that is closed at once, because it uses a reserved file descriptor."""
        self.counters.connections_refused += 1
        why = (
            f"the limit of {self.descriptors_max} open files allows {self.connections_max} connections beside"
            " log files; raise it"
        )
        self.peers.note(peer, "connection refused", why)
