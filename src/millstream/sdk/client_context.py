"""What a client and everything it makes have in common: where the brokers are, the seams, and how to ask them."""

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
"""Threads that a client may have for what would hold its event loop, which needs a processor too."""


class ClientContext:
    """One client's own; made without an event loop, used on one."""

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
        version: str = __version__,
    ) -> None:
        check_text("client_id", settings.client_id, 0, CLIENT_ID_MAX)
        check_metrics(metrics)
        self.seeds = tuple(seeds)
        self.clock = clock
        self.settings = settings
        self._network = network
        self._entropy = entropy
        self._workers = workers or ThreadWorkers(WORKERS, "millstream-worker")
        self._version = version
        self._metrics = NO_METRICS if metrics is None else GuardedMetrics(metrics)
        self._asking = self.asking()
        self._watching_clocks: asyncio.Task[None] | None = None
        self._watching: WatchEngine | None = None
        self.cluster_queries = ClusterQueries(self._asking, clock)
        self.times = self.cluster_queries.times
        self.lifecycle = Lifecycle("client", self._end)

    def __str__(self) -> str:
        return ",".join(map(str, self.seeds))

    async def open(self, timeout_s: float, watch: DriftWatch | None) -> None:
        """Reach a broker, and begin to watch the clocks."""
        await self.cluster_queries.reach(timeout_s)
        if watch is not None:
            await watch.check()
            self._watching_clocks = asyncio.get_running_loop().create_task(watch.run())

    def asking(self, role: Role | None = None, producer_group: str | None = None) -> RetryingCaller:
        """Connections of its own for something that the client makes, none of them open yet; each takes this role."""
        if producer_group is not None:
            check_text("group", producer_group, 1, PRODUCER_GROUP_MAX)
        greeting = Handshake(self._version, ConnectionRole(role, producer_group))
        cluster = Cluster(self.seeds, self._network, self.settings, greeting, self._metrics)
        return RetryingCaller(cluster, self._entropy, self._workers)

    def adopt(
        self,
        name: str,
        asking: RetryingCaller,
        close: Callable[[], Coroutine[Any, Any, None]],
        drop: Callable[[], object] | None = None,
    ) -> Lifecycle:
        """The life of something made: `close` is awaited when it or the client ends, then its connections go; `drop`
        is called in the child of a fork."""

        async def end() -> None:
            try:
                await close()
            finally:
                asking.cluster.close()

        return Lifecycle(name, end, self.lifecycle, drop)

    async def read(
        self, places: "Mapping[TopicPartition, Position]", limits: "WatchLimits", wait_s: float, timeout_s: float
    ) -> "dict[TopicPartition, ReadResult]":
        """What is at these places, or comes there first; see `WatchEngine.read`."""
        if self._watching is None:
            from millstream.sdk.watching.engine import WatchEngine  # Who does not read does not wait for the import.

            asking = self.asking(Role.CONSUMER)
            self._watching = WatchEngine(asking, self.times)
            self.adopt("reader", asking, self._watching.close)
        return await self._watching.read(places, limits, wait_s, timeout_s)

    async def _end(self) -> None:
        if self._watching_clocks is not None:
            self._watching_clocks.cancel()
        self._asking.cluster.close()
        self._workers.close()
