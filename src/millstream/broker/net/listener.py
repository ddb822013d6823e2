"""The listening socket and its connections: accepts, bounds their memory, ends them in order."""

import asyncio

from millstream.broker.dispatch.dispatch_table import DispatchTable
from millstream.broker.net.connection import ClientConnection
from millstream.broker.net.listener_state import Counters, ListenerState
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.peer_log import PeerLog
from millstream.seams.clock import Clock
from millstream.seams.network import Listening, Network
from millstream.seams.workers import Workers

MEMORY_PERIOD_S = 1.0


class Listener:
    def __init__(self, table: DispatchTable, clock: Clock, memory: MemoryLimits, workers: Workers) -> None:
        self.shared = ListenerState(table, memory, PeerLog(clock), workers)
        self._listening: Listening | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0

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
        """Listen; OSError when the address cannot be had."""
        self._listening = await network.listen(lambda: ClientConnection(self.shared), host, port)
        loop = asyncio.get_running_loop()
        self._looked_at = loop.time()
        self._timer = loop.call_later(MEMORY_PERIOD_S, self._look_after_memory)
        return self._listening

    async def stop(self, grace_s: float) -> None:
        """Accept and read no more; requests under way get `grace_s` to be answered, then their connections end."""
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

    def _look_after_memory(self) -> None:
        """While frames wait for memory, end all that hold some of it and hardly come any further."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        # When this look comes late, the loop was held up, and nobody could be heard in the meantime.
        is_late = now - self._looked_at > 2 * MEMORY_PERIOD_S
        self._looked_at = now
        if self.shared.memory.is_waited_for and not is_late:
            for each in [each for each in self.shared.connections if each.is_slow(now)]:
                each.cut_for_memory()
        self._timer = loop.call_later(MEMORY_PERIOD_S, self._look_after_memory)
