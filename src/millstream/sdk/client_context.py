"""Holds what a client shares with the objects it creates: broker addresses, seams, settings, metrics, lifecycle."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.model.names import TopicPartition
from millstream.model.roles import PRODUCER_GROUP_MAX, Role
from millstream.sdk.arguments import check_text
from millstream.sdk.cluster_queries import ClusterQueries
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.clock_drift import DriftWatch
from millstream.sdk.connection.cluster import Cluster, ConnectionSettings
from millstream.sdk.connection.handshake import ConnectionRole, Handshake
from millstream.sdk.connection.read_memory import ReadMemory
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.lifecycle import Lifecycle
from millstream.sdk.metrics import NO_METRICS, GuardedMetrics, Metrics, check_metrics
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy
from millstream.seams.network import Network
from millstream.seams.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from millstream.sdk.watching.engine import WatchEngine
    from millstream.sdk.watching.read_positions import Position
    from millstream.sdk.watching.read_result import ReadResult, WatchLimits

CLIENT_ID_MAX = 249
WORKERS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Maximum number of worker threads of a client. They do CPU work that would block the event loop."""


class ClientContext:
    """The shared state of one client. It can be created without an event loop, and is used on one."""

    def __init__(
        self,
        seeds: Sequence[Address],
        *,
        network: Network,
        clock: Clock,
        entropy: Entropy,
        workers: Workers | None = None,
        settings: ConnectionSettings,
        metrics: Metrics | None = None,
        memory: ReadMemory | None = None,
        version: str = __version__,
    ) -> None:
        """Check the arguments. `memory` limits the memory of reads; by default only each read has limits."""
        check_text("client_id", settings.client_id, least=0, most=CLIENT_ID_MAX)
        check_metrics(metrics)
        self.seeds = tuple(seeds)
        self.clock = clock
        self.settings = settings
        self._network = network
        self._entropy = entropy
        self._workers = workers or ThreadWorkers(WORKERS, "millstream-worker")
        self._version = version
        self._memory = memory
        self._metrics = NO_METRICS if metrics is None else GuardedMetrics(metrics)
        self._caller = self.new_caller()
        self._watching_clocks: asyncio.Task[None] | None = None
        self._watch_engine: WatchEngine | None = None
        self.cluster_queries = ClusterQueries(self._caller, clock)
        self.times = self.cluster_queries.times
        self.lifecycle = Lifecycle("client", self._end)

    def __str__(self) -> str:
        return ",".join(map(str, self.seeds))

    async def open(self, timeout_s: float, watch: DriftWatch | None) -> None:
        """Connect to a broker, and start to compare clocks if `watch` is given."""
        await self.cluster_queries.reach(timeout_s)
        if watch is not None:
            await watch.check()
            self._watching_clocks = asyncio.get_running_loop().create_task(watch.run())

    def new_caller(
        self, role: Role | None = None, producer_group: str | None = None, owner: str | None = None
    ) -> RetryingCaller:
        """Create a caller whose connections declare this role. Its connections are its own and open on demand.

        With a role, lost connections are opened again in the background. `owner` names the user of the connections in
        log lines; without it, the role does.
        """
        if producer_group is not None:
            check_text("group", producer_group, least=1, most=PRODUCER_GROUP_MAX)
        handshake = Handshake(self._version, ConnectionRole(role, producer_group))
        owner = owner or ("client" if role is None else role.name.lower())
        entropy = None if role is None else self._entropy
        cluster = Cluster(self.seeds, self._network, self.settings, handshake, self._metrics, owner, entropy)
        return RetryingCaller(cluster, self._entropy, self._workers, self._memory)

    def adopt(
        self,
        name: str,
        caller: RetryingCaller,
        close: Callable[[], Coroutine[Any, Any, None]],
        drop: Callable[[], object] | None = None,
    ) -> Lifecycle:
        """Create the lifecycle of an object that this client created.

        When the object or the client is closed, `close` is awaited and then the object's connections are closed.
        `drop` is called in the child process after a fork.
        """

        async def end() -> None:
            try:
                await close()
            finally:
                caller.cluster.close()

        return Lifecycle(name, end, self.lifecycle, drop)

    async def read(
        self, places: "Mapping[TopicPartition, Position]", limits: "WatchLimits", wait_s: float, timeout_s: float
    ) -> "dict[TopicPartition, ReadResult]":
        """Read messages at these positions, or wait for the first ones; see `WatchEngine.read`."""
        if self._watch_engine is None:
            from millstream.sdk.watching.engine import WatchEngine  # Imported on first use, to start faster.

            caller = self.new_caller(Role.CONSUMER, owner="reader")
            self._watch_engine = WatchEngine(caller, self.times)
            self.adopt("reader", caller, self._watch_engine.close)
        return await self._watch_engine.read(places, limits, wait_s, timeout_s)

    async def _end(self) -> None:
        if self._watching_clocks is not None:
            self._watching_clocks.cancel()
        self._caller.cluster.close()
        self._workers.close()
