"""Clusters that are made by a call: the seam to whoever starts brokers, and the supervisor behind it.

A gateway that `millstream serve` has started is told the path of its control socket; so may be any other on that
machine.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import ClusterFacts, Control, ControlRequest, NewCluster

log = logging.getLogger(__name__)

PAUSE_MIN_S = 0.2
PAUSE_MAX_S = 10.0
TOLD_WITHIN_S = 5.0


class ClusterCreator(Protocol):
    """Makes clusters of brokers, and knows those that were made. Every call may raise NO_SUPERVISOR."""

    async def create(self, new: NewCluster) -> ClusterFacts:
        """Make one, and come back when all its brokers serve.

        Raises INVALID_CLUSTER, CLUSTER_EXISTS, or CLUSTER_NOT_STARTED; then nothing of it is left.
        """
        ...

    async def list(self) -> Sequence[ClusterFacts]:
        """All that were made here."""
        ...

    async def start(self, name: str) -> ClusterFacts:
        """Start one that was stopped. Raises UNKNOWN_CLUSTER or CLUSTER_NOT_STARTED."""
        ...

    async def stop(self, name: str) -> ClusterFacts:
        """Stop one, until it is started by name. Raises UNKNOWN_CLUSTER."""
        ...

    async def delete(self, name: str) -> ClusterFacts:
        """Stop one and remove its data. Raises UNKNOWN_CLUSTER."""
        ...


async def made(maker: ClusterCreator) -> Sequence[ClusterFacts]:
    """All that were made here; none where nobody makes any."""
    try:
        return await maker.list()
    except MillstreamError as error:
        if error.code is not ErrorCode.NO_SUPERVISOR:
            raise
        return ()


class NoSupervisor:
    """Stands where no supervisor is."""

    async def create(self, new: NewCluster) -> ClusterFacts:
        raise _nobody()

    async def list(self) -> Sequence[ClusterFacts]:
        raise _nobody()

    async def start(self, name: str) -> ClusterFacts:
        raise _nobody()

    async def stop(self, name: str) -> ClusterFacts:
        raise _nobody()

    async def delete(self, name: str) -> ClusterFacts:
        raise _nobody()


class Supervised:
    """Asks the supervisor at the other end of a control socket."""

    def __init__(self, path: Path) -> None:
        self._control = Control(path)
        self._known: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        """Set, and replaced, whenever clusters were told."""

    async def create(self, new: NewCluster) -> ClusterFacts:
        """As promised; when it is back, those who follow have been told of the cluster."""
        made = await self._one(ControlRequest("create", cluster=new))
        try:
            async with asyncio.timeout(TOLD_WITHIN_S):
                while made.name not in self._known:
                    await self._news.wait()
        except TimeoutError:
            log.warning("a cluster was made, and nobody told of it yet", extra={"cluster": made.name})
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
        (facts,) = await self._control.ask(request)
        return facts

    async def follow(self, http_port: int, grpc_port: int, tell: Callable[[Mapping[str, Sequence[str]]], None]) -> None:
        """Tell where the brokers of each cluster are, now and after every change; goes on until it is cancelled."""
        pause_s = PAUSE_MIN_S
        while True:
            try:
                async for clusters in self._control.watch(http_port, grpc_port):
                    tell({facts.name: [broker.address for broker in facts.brokers] for facts in clusters})
                    self._known = frozenset(facts.name for facts in clusters)
                    self._news.set()
                    self._news = asyncio.Event()
                    pause_s = PAUSE_MIN_S
            except MillstreamError as problem:
                log.warning("the supervisor cannot be asked for clusters", extra={"why": problem.detail})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _nobody() -> MillstreamError:
    return MillstreamError(
        ErrorCode.NO_SUPERVISOR,
        "this gateway was not started by a `millstream serve` that could start brokers; ask one that was,"
        " or give this one the path of its control socket (--control)",
    )
