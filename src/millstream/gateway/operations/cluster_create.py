"""Creates, starts, stops and deletes local clusters through the supervisor's control socket.

`millstream serve` passes the path of its control socket to the gateway it starts. Any other gateway on that machine can
be given the path with `--control`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import caller_fields
from millstream.process.control_protocol import (
    ClusterFacts,
    Control,
    ControlRequest,
    NewCluster,
    ProblemSource,
    no_problems,
)

log = logging.getLogger(__name__)

PAUSE_MIN_S = 0.2
PAUSE_MAX_S = 10.0
SERVED_WITHIN_S = 5.0


class ClusterCreator(Protocol):
    """Creates local clusters and manages those it created. Every call may raise NO_SUPERVISOR."""

    async def create(self, new: NewCluster) -> ClusterFacts:
        """Create a cluster and return when all of its brokers serve.

        Raises INVALID_CLUSTER, CLUSTER_EXISTS or CLUSTER_NOT_STARTED. A failed creation leaves nothing behind.
        """
        ...

    async def list(self) -> Sequence[ClusterFacts]:
        """Return all clusters that were created here."""
        ...

    async def start(self, name: str) -> ClusterFacts:
        """Start a stopped cluster. Raises UNKNOWN_CLUSTER or CLUSTER_NOT_STARTED."""
        ...

    async def stop(self, name: str) -> ClusterFacts:
        """Stop a cluster. It stays stopped until it is started by name. Raises UNKNOWN_CLUSTER."""
        ...

    async def delete(self, name: str) -> ClusterFacts:
        """Stop a cluster and remove its data. Raises UNKNOWN_CLUSTER."""
        ...


async def list_created(maker: ClusterCreator) -> Sequence[ClusterFacts]:
    """Return all clusters that the supervisor created; none if there is no supervisor."""
    try:
        return await maker.list()
    except MillstreamError as error:
        if error.code is not ErrorCode.NO_SUPERVISOR:
            raise
        return ()


class NoSupervisor:
    """Refuses every call with NO_SUPERVISOR. Used by a gateway without a control socket."""

    async def create(self, new: NewCluster) -> ClusterFacts:
        raise _no_supervisor()

    async def list(self) -> Sequence[ClusterFacts]:
        raise _no_supervisor()

    async def start(self, name: str) -> ClusterFacts:
        raise _no_supervisor()

    async def stop(self, name: str) -> ClusterFacts:
        raise _no_supervisor()

    async def delete(self, name: str) -> ClusterFacts:
        raise _no_supervisor()


class Supervised:
    """Sends each call to the supervisor over its control socket."""

    def __init__(self, path: Path) -> None:
        self._control = Control(path)
        self._known: frozenset[str] = frozenset()
        self._stopped: frozenset[str] = frozenset()
        self._updated = asyncio.Event()
        """Set and replaced after each update from the supervisor."""

    def is_stopped(self, name: str) -> bool:
        """Return True if the supervisor last reported this cluster as stopped."""
        return name in self._stopped

    async def create(self, new: NewCluster) -> ClusterFacts:
        """Create a cluster and return once this gateway serves it, or after TOLD_WITHIN_S with a warning in the log."""
        made = await self._one(ControlRequest("create", cluster=new))
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                while made.name not in self._known:
                    await self._updated.wait()
        except TimeoutError:
            log.warning("cluster created but not served by this gateway yet", extra={"cluster": made.name})
        return made

    async def list(self) -> Sequence[ClusterFacts]:
        return await self._control.ask(ControlRequest("list"))

    async def start(self, name: str) -> ClusterFacts:
        return await self._one(ControlRequest("start", name))

    async def stop(self, name: str) -> ClusterFacts:
        return await self._one(ControlRequest("stop", name))

    async def delete(self, name: str) -> ClusterFacts:
        return await self._one(ControlRequest("delete", name))

    async def _one(self, request: ControlRequest) -> ClusterFacts:
        who = {name: str(value) for name, value in caller_fields().items()}
        (facts,) = await self._control.ask(msgspec.structs.replace(request, **who))
        return facts

    async def follow(
        self,
        http_port: int,
        *,
        grpc_port: int,
        on_change: Callable[[Mapping[str, Sequence[str]]], None],
        problems: ProblemSource = no_problems,
    ) -> None:
        """Report the broker addresses of each cluster, now and after every change, until cancelled.

        Answers the supervisor's pings with the `problems` of the gateway.
        """
        pause_s = PAUSE_MIN_S
        while True:
            try:
                async for clusters in self._control.watch(http_port, grpc_port=grpc_port, problems=problems):
                    self._stopped = frozenset(facts.name for facts in clusters if facts.is_stopped)
                    on_change({facts.name: [broker.address for broker in facts.brokers] for facts in clusters})
                    self._known = frozenset(facts.name for facts in clusters)
                    self._updated.set()
                    self._updated = asyncio.Event()
                    pause_s = PAUSE_MIN_S
            except MillstreamError as problem:
                log.warning("supervisor not reachable", extra={"error": problem.detail})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _no_supervisor() -> MillstreamError:
    return MillstreamError(
        ErrorCode.NO_SUPERVISOR,
        "this gateway has no supervisor to start brokers; use a gateway that `millstream serve` started,"
        " or pass the path of the supervisor's control socket (--control)",
    )
