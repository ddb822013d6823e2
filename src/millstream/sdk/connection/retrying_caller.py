"""Sends requests with retries until a response arrives or the deadline passes."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from millstream.model.errors import MillstreamError
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.read_memory import ReadMemory, UnlimitedMemory
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

_log = logging.getLogger("millstream.sdk.retrying")

PLACES_PER_REQUEST = 5_000
"""Maximum number of partitions in one request; brokers limit it."""


class RetryingCaller:
    """Sends requests to a cluster with retries.

    It also holds the worker threads of the client, for compression, and the memory that its reads share.
    """

    def __init__(self, cluster: Cluster, entropy: Entropy, workers: Workers, memory: ReadMemory | None = None) -> None:
        self.cluster = cluster
        self.entropy = entropy
        self.workers = workers
        self.memory = memory or UnlimitedMemory()
        self.metrics = cluster.metrics

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline, *topics: str) -> T:
        """Run `attempt` until it succeeds. Before a retry the cached metadata of the topics is dropped."""
        attempts = Attempts(self.entropy, deadline)
        while True:
            try:
                return await attempt()
            except MillstreamError as error:
                for topic in topics:
                    self.cluster.forget(topic)
                if not await attempts.again(error):
                    cause = attempts.root_cause(error)
                    if cause is not error:
                        raise cause from error
                    raise
                _log.debug(LogEvent("request retried", error=error))
                self.metrics.count("retries", 1, {"error": error.code.name})

    async def anyone(self, request: ApiRequest[T], deadline: Deadline) -> T:
        """Send a request to any broker."""

        async def ask() -> T:
            connection = await self.cluster.anyone(deadline)
            return await connection.request(request, self.cluster.timeout_s(deadline))

        return await self.retrying(ask, deadline)

    async def broker(self, node_id: int, request: ApiRequest[T], deadline: Deadline) -> T:
        """Send a request to broker `node_id`; raises RESOURCE_NOT_FOUND if it does not exist."""

        async def ask() -> T:
            connection = await self.cluster.broker(node_id, deadline)
            return await connection.request(request, self.cluster.timeout_s(deadline))

        return await self.retrying(ask, deadline)

    async def every_broker(self, request: ApiRequest[T], deadline: Deadline) -> dict[int, T]:
        """Send a request to all brokers; returns the responses by broker number."""
        view = await self.retrying(lambda: self.cluster.refresh([], deadline), deadline)
        return {node_id: await self.broker(node_id, request, deadline) for node_id in sorted(view.brokers)}
