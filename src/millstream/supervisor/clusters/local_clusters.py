"""All clusters of one supervisor: made, listed, started, stopped and deleted by a call, and remembered.

Invariants: a cluster is told of only when every broker of it has been up and the disk knows it; one that could not be
made leaves no process and no file; a name has at most one change under way.
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
from millstream.process.control_protocol import ClusterFacts, NewCluster
from millstream.seams.workers import Workers
from millstream.supervisor.clusters.managed_broker import ManagedBroker
from millstream.supervisor.clusters.name_checks import check
from millstream.supervisor.clusters.stored_clusters import ClusterFiles, StoredCluster

log = logging.getLogger(__name__)

START_LIMIT_S = 60.0
DIRECTORY = "clusters"


class _Cluster:
    """One cluster that was made."""

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
    """The clusters below `data`, whose brokers are set as `like` is. `changed` is called when there are others."""

    def __init__(self, data: Path, like: BrokerSettings, workers: Workers, changed: Callable[[], None]) -> None:
        self._files = ClusterFiles(data / DIRECTORY)
        self._like = like
        self._workers = workers
        self._changed = changed
        self._clusters: dict[str, _Cluster] = {}
        self._busy: dict[str, int] = {}
        """Names with a change under way, and how many brokers that may bring."""

    def facts(self) -> tuple[ClusterFacts, ...]:
        return tuple(cluster.facts() for _, cluster in sorted(self._clusters.items()))

    async def open(self) -> None:
        """Start the clusters that were made before, without waiting; what cannot be read is told in the log."""
        for remembered in await self._workers.run(self._files.read):
            try:
                places = await self._workers.run(partial(self._files.places, remembered.asked))
            except MillstreamError as problem:
                told = {"cluster": remembered.asked.name, "why": problem.detail}
                log.error("a cluster is not started", extra=told)
                continue
            cluster = self._clusters[remembered.asked.name] = self._assembled(remembered, places)
            if not cluster.is_stopped:
                for broker in cluster.brokers:
                    broker.start()
        self._changed()

    async def close(self) -> None:
        """Stop every broker; what runs is remembered as such."""
        await _all(broker.stop() for cluster in self._clusters.values() for broker in cluster.brokers)

    async def create(self, new: NewCluster) -> ClusterFacts:
        """Make a cluster, and come back when all of its brokers serve.

        Raises INVALID_CLUSTER, CLUSTER_EXISTS, or CLUSTER_NOT_STARTED when a broker does not come up or the disk
        refuses; then nothing of it is left.
        """
        count = sum(len(cluster.brokers) for cluster in self._clusters.values()) + sum(self._busy.values())
        check(new, count)
        if new.name in self._clusters:
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"there is a cluster {new.name!r} already")
        with self._change(new.name, new.brokers):
            try:
                cluster = await self._make(new)
            except OSError as problem:
                detail = f"the cluster {new.name!r} cannot be made: {problem}"
                raise MillstreamError(ErrorCode.CLUSTER_NOT_STARTED, detail) from problem
        self._clusters[new.name] = cluster
        log.info("a cluster was made", extra={"cluster": new.name, "brokers": new.brokers})
        self._changed()
        return cluster.facts()

    async def start(self, name: str) -> ClusterFacts:
        """Start a cluster that was stopped, and come back when its brokers serve; does nothing where it runs.

        Raises UNKNOWN_CLUSTER, or CLUSTER_NOT_STARTED; then it is stopped as before.
        """
        cluster = self._known(name)
        with self._change(name):
            if cluster.is_stopped:
                try:
                    await _all(broker.first_start(START_LIMIT_S) for broker in cluster.brokers)
                except MillstreamError:
                    await _all(broker.stop() for broker in cluster.brokers)
                    raise
                cluster.is_stopped = False
                await self._remember(cluster)
        return cluster.facts()

    async def stop(self, name: str) -> ClusterFacts:
        """Stop a cluster's brokers, until it is started by name. Raises UNKNOWN_CLUSTER."""
        cluster = self._known(name)
        with self._change(name):
            cluster.is_stopped = True
            await _all(broker.stop() for broker in cluster.brokers)
            await self._remember(cluster)
        return cluster.facts()

    async def delete(self, name: str) -> ClusterFacts:
        """Stop a cluster and remove it with all its data. Raises UNKNOWN_CLUSTER, or OSError when the disk refuses."""
        cluster = self._known(name)
        with self._change(name):
            cluster.is_stopped = True
            await _all(broker.stop() for broker in cluster.brokers)
            await self._workers.run(partial(self._files.forget, cluster.asked))
            del self._clusters[name]
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
            # Nobody was told of it, so nothing in it is worth a clean end.
            await _all(broker.stop(0.0) for broker in cluster.brokers)
            await self._workers.run(partial(self._files.forget, new))
            raise
        return cluster

    async def _remember(self, cluster: _Cluster) -> None:
        await self._workers.run(partial(self._files.remember, cluster.remembered()))
        self._changed()

    def _assembled(self, remembered: StoredCluster, places: Sequence[Path]) -> _Cluster:
        rows = enumerate(zip(places, remembered.ports, strict=True), 1)
        brokers = [ManagedBroker(remembered.asked, number, *row, self._like, self._changed) for number, row in rows]
        return _Cluster(remembered, brokers)

    def _known(self, name: str) -> _Cluster:
        if name not in self._clusters:
            known = ", ".join(sorted(self._clusters)) or "none"
            raise MillstreamError(
                ErrorCode.UNKNOWN_CLUSTER, f"there is no cluster {name[:80]!r} here; there are: {known}"
            )
        return self._clusters[name]

    @contextmanager
    def _change(self, name: str, brokers: int = 0) -> Iterator[None]:
        if name in self._busy:
            raise MillstreamError(ErrorCode.CLUSTER_EXISTS, f"the cluster {name!r} is being changed; ask again later")
        self._busy[name] = brokers
        try:
            yield
        finally:
            del self._busy[name]


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of these to their end; then raise the first failure."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
