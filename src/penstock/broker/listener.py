"""The listening socket and its connections: accepts, bounds their memory, ends them in order."""

import asyncio

from penstock.broker.connection import Connection
from penstock.broker.memory import Memory
from penstock.broker.peer_log import PeerLog
from penstock.broker.shared import Counters, Shared
from penstock.broker.table import Table
from penstock.model.clock import Clock
from penstock.model.network import Listening, Network

MEMORY_PERIOD_S = 1.0
MEMORY_PATIENCE_S = 5.0


class Listener:
    def __init__(self, table: Table, clock: Clock, memory: Memory) -> None:
        self.shared = Shared(table, memory, PeerLog(clock))
        self._listening: Listening | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._short_since: float | None = None

    @property
    def counters(self) -> Counters:
        return self.shared.counters

    @property
    def memory(self) -> Memory:
        return self.shared.memory

    @property
    def connection_count(self) -> int:
        return len(self.shared.connections)

    async def start(self, network: Network, host: str, port: int) -> Listening:
        """Listen; OSError when the address cannot be had."""
        self._listening = await network.listen(lambda: Connection(self.shared), host, port)
        self._timer = asyncio.get_running_loop().call_later(MEMORY_PERIOD_S, self._look_after_memory)
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
        """When frames have waited for memory for a while, end the one that has been half there for longest."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self.shared.memory.is_waited_for:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since >= MEMORY_PATIENCE_S:
            halves = [
                (since, order, each)
                for order, each in enumerate(self.shared.connections)
                if (since := each.partial_since) is not None
            ]
            if halves:
                min(halves)[2].cut_for_memory()
        self._timer = loop.call_later(MEMORY_PERIOD_S, self._look_after_memory)
