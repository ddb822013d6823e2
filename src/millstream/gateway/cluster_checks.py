"""Checks regularly whether the brokers of the served clusters answer, for health and readiness.

Each member of a cluster is checked over a connection of its own, because a slow request would delay the answer on a
shared connection. Stopped local clusters are not checked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

from millstream.gateway.failures import detail_of
from millstream.gateway.operations.clusters import DEFAULT, ClusterMember, ServedClusters
from millstream.model.errors import MillstreamError
from millstream.process.findings import Finding

log = logging.getLogger(__name__)

PERIOD_S = 5.0
TIMEOUT_S = 3.0


class _Result:
    """The last result for one member: not known yet, reachable, or the time since when and why it is not."""

    def __init__(self) -> None:
        self.is_known = False
        self.failed_at: datetime | None = None
        self.reason = ""


class ClusterChecks:
    """Checks the members of `clusters`, except of those that `is_stopped` names."""

    def __init__(self, clusters: ServedClusters, is_stopped: Callable[[str], bool]) -> None:
        self._clusters = clusters
        self._is_stopped = is_stopped
        self._results: dict[ClusterMember, _Result] = {}

    async def run(self, on_result: Callable[[], Awaitable[None]]) -> None:
        """Checks all members every PERIOD_S, and calls `on_result` after each round."""
        while True:
            members = [*self._members()]
            self._results = {member: self._results.get(member) or _Result() for _, member in members}
            await asyncio.gather(*(self._check(name, member) for name, member in members))
            await on_result()
            await asyncio.sleep(PERIOD_S)

    def findings(self) -> list[Finding]:
        """Returns a finding for each member that does not answer. Without the default cluster, nothing is ready."""
        found = []
        for name, member in self._members():
            result = self._results.get(member)
            if result is not None and result.failed_at is not None:
                since = result.failed_at.isoformat(timespec="seconds")
                text = f"the cluster {name} is not reachable at {member.bootstrap} since {since}: {result.reason}"
                found.append(Finding(text, blocks_ready=name == DEFAULT))
            elif name == DEFAULT and (result is None or not result.is_known):
                text = f"the cluster {name} at {member.bootstrap} has not answered yet"
                found.append(Finding(text, is_problem=False, blocks_ready=True))
        return found

    def _members(self) -> Iterator[tuple[str, ClusterMember]]:
        for name in self._clusters.names:
            if not self._is_stopped(name):
                for member in self._clusters.get(name).members:
                    yield name, member

    async def _check(self, name: str, member: ClusterMember) -> None:
        result = self._results[member]
        fields = {"cluster": name, "bootstrap": member.bootstrap}
        try:
            await member.check(TIMEOUT_S)
        except MillstreamError as problem:
            if result.failed_at is None:
                result.failed_at = datetime.now(UTC)
                log.warning("cluster not reachable", extra={**fields, "error": problem.detail})
            result.reason = detail_of(problem)
        else:
            if result.failed_at is not None:
                log.info("cluster reachable again", extra=fields)
            result.failed_at = None
        result.is_known = True
