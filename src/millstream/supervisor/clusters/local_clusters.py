"""Creates, lists, starts, stops and deletes the local clusters of one supervisor, and stores them on disk.

Guarantees: a cluster is reported only after each of its brokers was ready and the cluster was stored durably. A failed
creation leaves no process and no file. At most one change per cluster name runs at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import BrokerSettings
from millstream.process.client_events import log_client_event
from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, NewCluster
from millstream.seams.workers import Workers
from millstream.supervisor.clusters.managed_broker import ManagedBroker
from millstream.supervisor.clusters.name_checks import check
from millstream.supervisor.clusters.stored_clusters import ClusterFiles, StoredCluster

log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
DIRECTORY = "clusters"


class _Cluster:
    """One created cluster with its brokers."""

    def __init__(self, remembered: StoredCluster, brokers: Sequence[ManagedBroker]) -> None:
        self.asked = remembered.asked
        self.brokers = brokers
        self.is_stopped = remembered.is_stopped

    def remembered(self) -> StoredCluster:
        ports = tuple(broker.port for broker in self.brokers)
        return StoredCluster(asked=self.asked, ports=ports, is_made=True, is_stopped=self.is_stopped)

    def facts(self) -> ClusterFacts:
        asked = self.asked
        return ClusterFacts(
            asked.name,
            tuple(broker.facts() for broker in self.brokers),
            self.is_stopped,
            asked.log_directories,
            asked.partitions,
            asked.retention_ms,
            asked.retention_bytes,
        )


class LocalClusters:
    """The clusters in `data`. Their brokers inherit the settings `like`. `changed` is called after each change."""

    def __init__(self, data: Path, like: BrokerSettings, workers: Workers, changed: Callable[[], None]) -> None:
        self._control = data / SOCKET_NAME
        self._files = ClusterFiles(data / DIRECTORY)
        self._like = like
        self._workers = workers
        self._changed = changed
        self._clusters: dict[str, _Cluster] = {}
        self._busy: dict[str, int] = {}
        """Names of clusters with a running change, and the number of brokers that the change may add."""

    def facts(self) -> tuple[ClusterFacts, ...]:
        return tuple(cluster.facts() for _, cluster in sorted(self._clusters.items()))

    def pids(self, name: str) -> Sequence[int | None]:
        """Returns the process of each broker of a cluster, in the order of its facts; None if it does not run."""
        return [broker.pid for broker in self._clusters[name].brokers]

    async def open(self) -> None:
        """Starts the stored clusters without waiting until they are ready. Logs those that cannot be read."""
        for remembered in await self._workers.run(self._files.read):
            try:
                places = await self._workers.run(partial(self._files.places, remembered.asked))
            except MillstreamError as problem:
                fields = {"cluster": remembered.asked.name, "error": problem.detail}
                log.error("cluster not started", extra=fields)
                continue
            cluster = self._clusters[remembered.asked.name] = self._assembled(remembered, places)
            if not cluster.is_stopped:
                for broker in cluster.brokers:
                    broker.start()
        self._changed()

    async def close(self) -> None:
        """Stops every broker. Clusters that were running stay stored as running."""
        await _all(broker.stop() for cluster in self._clusters.values() for broker in cluster.brokers)

    async def create(self, new: NewCluster) -> ClusterFacts:
        """Creates a cluster and returns when all of its brokers are ready.

        Raises INVALID_CLUSTER, CLUSTER_EXISTS, or CLUSTER_NOT_STARTED if a broker does not start or the disk fails.
        After a failure nothing of the cluster is left.
        """
        count = sum(len(cluster.brokers) for cluster in self._clusters.values()) + sum(self._busy.values())
        check(new, count)
        if new.name in self._clusters:
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"the cluster {new.name!r} already exists")
        with self._change(new.name, new.brokers):
            try:
                cluster = await self._make(new)
            except OSError as problem:
                detail = f"cannot create the cluster {new.name!r}: {problem}"
                raise MillstreamError(ErrorCode.CLUSTER_NOT_STARTED, detail) from problem
        self._clusters[new.name] = cluster
        log_client_event(log, "cluster created", cluster=new.name, brokers=new.brokers)
        self._changed()
        return cluster.facts()

    async def start(self, name: str) -> ClusterFacts:
        """Starts a stopped cluster and returns when its brokers are ready. Does nothing if it is running.

        Raises UNKNOWN_CLUSTER, or CLUSTER_NOT_STARTED, after which the cluster is still stopped.
        """
        cluster = self._existing(name)
        with self._change(name):
            if cluster.is_stopped:
                try:
                    await _all(broker.first_start(START_LIMIT_S) for broker in cluster.brokers)
                except MillstreamError:
                    await _all(broker.stop() for broker in cluster.brokers)
                    raise
                cluster.is_stopped = False
                await self._remember(cluster)
                log_client_event(log, "cluster started", cluster=name, brokers=len(cluster.brokers))
        return cluster.facts()

    async def stop(self, name: str) -> ClusterFacts:
        """Stops a cluster's brokers until it is started by name. Raises UNKNOWN_CLUSTER."""
        cluster = self._existing(name)
        with self._change(name):
            cluster.is_stopped = True
            await _all(broker.stop() for broker in cluster.brokers)
            await self._remember(cluster)
        log_client_event(log, "cluster stopped", cluster=name, brokers=len(cluster.brokers))
        return cluster.facts()

    async def delete(self, name: str) -> ClusterFacts:
        """Stops a cluster and deletes all its data. Raises UNKNOWN_CLUSTER, or OSError if the disk fails."""
        cluster = self._existing(name)
        with self._change(name):
            cluster.is_stopped = True
            await _all(broker.stop() for broker in cluster.brokers)
            await self._workers.run(partial(self._files.forget, cluster.asked))
            del self._clusters[name]
        log_client_event(log, "cluster deleted", cluster=name, brokers=len(cluster.brokers))
        self._changed()
        return cluster.facts()

    async def _make(self, new: NewCluster) -> _Cluster:
        places = await self._workers.run(partial(self._files.check, new))
        cluster = self._assembled(StoredCluster(asked=new, ports=(0,) * new.brokers), places)
        try:
            await self._workers.run(partial(self._files.begin, new))
            await _all(broker.first_start(START_LIMIT_S) for broker in cluster.brokers)
            await self._workers.run(partial(self._files.remember, cluster.remembered()))
        except BaseException:
            # No client knows the cluster yet, so its brokers have no data to protect and are killed.
            try:
                await _all(broker.stop(0.0) for broker in cluster.brokers)
            finally:
                await self._workers.run(partial(self._files.forget, new))
            raise
        return cluster

    async def _remember(self, cluster: _Cluster) -> None:
        await self._workers.run(partial(self._files.remember, cluster.remembered()))
        self._changed()

    def _assembled(self, remembered: StoredCluster, places: Sequence[Path]) -> _Cluster:
        rows = enumerate(zip(places, remembered.ports, strict=True), 1)
        brokers = [
            ManagedBroker(remembered.asked, number, *row, self._like, self._changed, self._control)
            for number, row in rows
        ]
        return _Cluster(remembered, brokers)

    def _existing(self, name: str) -> _Cluster:
        if name not in self._clusters:
            known = ", ".join(sorted(self._clusters)) or "none"
            raise MillstreamError(
                ErrorCode.UNKNOWN_CLUSTER, f"cluster {name[:80]!r} does not exist; existing clusters: {known}"
            )
        return self._clusters[name]

    @contextmanager
    def _change(self, name: str, brokers: int = 0) -> Iterator[None]:
        if name in self._busy:
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"the cluster {name!r} is being changed; retry later")
        self._busy[name] = brokers
        try:
            yield
        finally:
            assert name in self._busy, "at most one change per cluster name runs at a time"
            del self._busy[name]


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all coroutines until they end, then raises the first failure."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
