"""Listens for connections, limits their memory, and drains them at shutdown."""

import asyncio

from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.net.connection import ClientConnection
from millstream.broker.net.listener_state import Counters, ListenerState, connections_max
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.peer_log import PeerLog
from millstream.seams.clock import Clock
from millstream.seams.network import Listening, Network
from millstream.seams.workers import Workers

MEMORY_PERIOD_S = 1.0


class Listener:
    def __init__(
        self,
        table: DispatchTable,
        clock: Clock,
        memory: MemoryLimits,
        workers: Workers,
        *,
        descriptors_max: int = 0,
        log_files_max: int = 0,
    ) -> None:
        """`descriptors_max` is the limit of open files of the process, and `log_files_max` its share for log files."""
        self.shared = ListenerState(
            table,
            memory,
            PeerLog(clock),
            workers,
            descriptors_max=descriptors_max,
            connections_max=connections_max(descriptors_max=descriptors_max, log_files_max=log_files_max),
        )
        self._listening: Listening | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checked_at = 0.0

    @property
    def counters(self) -> Counters:
        return self.shared.counters

    @property
    def memory(self) -> MemoryLimits:
        return self.shared.memory

    @property
    def connection_count(self) -> int:
        return len(self.shared.connections)

    async def start(self, network: Network, host: str, port: int) -> Listening:
        """Listen on an address. Raises OSError if it cannot be bound."""
        self._listening = await network.listen(lambda: ClientConnection(self.shared), host, port)
        loop = asyncio.get_running_loop()
        self._checked_at = loop.time()
        self._timer = loop.call_later(MEMORY_PERIOD_S, self._check_memory)
        return self._listening

    async def stop(self, grace_s: float) -> None:
        """Stop accepting and reading. Connections close once pending requests are answered, or after `grace_s`."""
        if self._listening is not None:
            self._listening.close()
        if self._timer is not None:
            self._timer.cancel()
        connections = self.shared.connections
        for connection in connections:
            connection.drain()
        try:
            await asyncio.wait_for(connections.wait_until_empty(), grace_s)
        except TimeoutError:
            for connection in connections:
                connection.abort()
        for task in list(self.shared.tasks):
            task.cancel()
        await asyncio.sleep(0)
        self.shared.watch.close()

    def _check_memory(self) -> None:
        """While frames wait for memory, disconnect the peers whose incomplete frames hold memory and arrive slowly."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        # A late check means that the event loop was blocked, so it could not read what peers sent meanwhile.
        is_late = now - self._checked_at > 2 * MEMORY_PERIOD_S
        self._checked_at = now
        if self.shared.memory.is_waited_for and not is_late:
            for each in [each for each in self.shared.connections if each.is_slow(now)]:
                each.cut_for_memory()
        self._timer = loop.call_later(MEMORY_PERIOD_S, self._check_memory)
