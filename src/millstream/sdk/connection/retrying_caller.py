"""Asks until there is an answer or the time is over: what all operations of the client have in common."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.cluster import Cluster
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

_log = logging.getLogger("millstream.sdk.retrying")

PLACES_PER_REQUEST = 5_000
"""Brokers bound how many partitions one request may name."""

PLACES_AT_ONCE = 1_000
"""So many partitions are asked about before others have a turn on the event loop."""


class RetryingCaller:
    """The cluster, and how to try again; and who does for it what would hold the event loop: compressing, mostly."""

    def __init__(self, cluster: Cluster, entropy: Entropy, workers: Workers) -> None:
        self.cluster = cluster
        self.entropy = entropy
        self.workers = workers
        self.metrics = cluster.metrics

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline, *topics: str) -> T:
        """The first success; what is remembered of the topics is asked again before a retry."""
        attempts = Attempts(self.entropy, deadline)
        while True:
            try:
                return await attempt()
            except MillstreamError as error:
                for topic in topics:
                    self.cluster.forget(topic)
                if not await attempts.again(error):
                    account = attempts.account(error)
                    if account is not error:
                        raise account from error
                    raise
                _log.debug("trying again after %s", error)
                self.metrics.count("retries", 1, {"error": error.code.name})

    async def anyone(self, request: ApiRequest[T], deadline: Deadline) -> T:
        """The answer of whichever broker gives one."""

        async def ask() -> T:
            connection = await self.cluster.anyone(deadline)
            return await connection.request(request, self.cluster.timeout_s(deadline))

        return await self.retrying(ask, deadline)

    async def broker(self, node_id: int, request: ApiRequest[T], deadline: Deadline) -> T:
        """The answer of this broker; RESOURCE_NOT_FOUND when the cluster has none of that number."""

        async def ask() -> T:
            connection = await self.cluster.broker(node_id, deadline)
            return await connection.request(request, self.cluster.timeout_s(deadline))

        return await self.retrying(ask, deadline)

    async def every_broker(self, request: ApiRequest[T], deadline: Deadline) -> dict[int, T]:
        """The answers of all brokers, by their numbers."""
        view = await self.retrying(lambda: self.cluster.refresh([], deadline), deadline)
        return {node_id: await self.broker(node_id, request, deadline) for node_id in sorted(view.brokers)}

    async def leaders(
        self,
        places: Mapping[TopicPartition, int],
        request: Callable[[Mapping[TopicPartition, int]], ApiRequest[dict[TopicPartition, T | MillstreamError]]],
        deadline: Deadline,
        *,
        at_once: int | None = None,
    ) -> dict[TopicPartition, T]:
        """Ask each partition's leader about it, with a number each; the first refusal that lasts is raised."""
        found: dict[TopicPartition, T] = {}
        step = at_once or PLACES_AT_ONCE

        async def ask() -> None:
            left = [each for each in places.items() if each[0] not in found]
            for at in range(0, len(left), step):
                for address, share in (await self._by_leader(left[at : at + step], deadline)).items():
                    connection = await self.cluster.to(address, deadline)
                    answer = await connection.request(request(share), self.cluster.timeout_s(deadline))
                    for where, result in answer.items():
                        if isinstance(result, MillstreamError):
                            raise result
                        found[where] = result

        await self.retrying(ask, deadline, *dict.fromkeys(where.topic for where in places))
        return {where: found[where] for where in places}

    async def _by_leader(
        self, places: Iterable[tuple[TopicPartition, int]], deadline: Deadline
    ) -> dict[Address, dict[TopicPartition, int]]:
        shares: dict[Address, dict[TopicPartition, int]] = {}
        for where, number in places:
            leader = await self.cluster.leader(where.topic, where.partition, deadline)
            shares.setdefault(leader, {})[where] = number
        return shares
