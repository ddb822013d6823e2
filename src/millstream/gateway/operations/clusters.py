"""Holds the clusters that a gateway serves, by name.

Their SDK clients connect on first use and reconnect on their own. A cluster whose brokers know each other has one
member with one client. A local cluster has a member per broker, because each broker has a catalog of its own until
replication exists. There a topic lives on one member: a new topic is created on the member that the hash of its name
selects, and lists are merged from all members.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_topic_name
from millstream.sdk.aio.client import AsyncClient
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.sdk.connection.read_memory import ReadMemory
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import Workers

T = TypeVar("T")

log = logging.getLogger(__name__)

DEFAULT = "default"
"""Name of the cluster that requests use by default."""

CLIENT_ID = "millstream-gateway"
"""Client id of the gateway's requests, to brokers and to the supervisor."""

_HOMES_MAX = 10_000
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class ClientFactory:
    """Makes the SDK clients. Network, clock, entropy and workers are replaced in tests."""

    timeout_s: float = 10.0
    """Timeout of each operation."""
    held_bytes: int = 256 * 1024 * 1024
    """Most bytes that a producer buffers."""
    client_id: str = CLIENT_ID
    network: Network | None = None
    clock: Clock | None = None
    entropy: Entropy | None = None
    workers: Workers | None = None
    memory: ReadMemory | None = None
    """Limits the memory of reads; None: no common limit."""

    def client(self, bootstrap: str) -> AsyncClient:
        """Make a client. It connects on first use."""
        home = ClientContext(
            parse_bootstrap(bootstrap),
            network=self.network or TcpNetwork(),
            clock=self.clock or SystemClock(),
            entropy=self.entropy or SystemEntropy(),
            workers=self.workers,
            settings=ConnectionSettings(self.client_id, min(5.0, self.timeout_s), self.timeout_s),
            memory=self.memory,
        )
        return AsyncClient(AsyncPortal(), home)


class ClusterMember:
    """One SDK client with the producer and the iterator calls that all requests share."""

    def __init__(self, bootstrap: str, connecting: ClientFactory) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = connecting.timeout_s
        self.client = connecting.client(bootstrap)
        self._checking = connecting.client(bootstrap)
        self.clock = connecting.clock or SystemClock()
        self._held_bytes = connecting.held_bytes
        self._producer: AsyncProducer | None = None
        self._calls: AsyncIteratorCalls | None = None

    @property
    def producer(self) -> AsyncProducer:
        """The producer that all requests share. It does not linger; requests that arrive during a send go into the next
        batch.
        """
        if self._producer is None:
            self._producer = self.client.producer(linger=0, timeout=self.timeout_s, max_bytes=self._held_bytes)
        return self._producer

    @property
    def calls(self) -> AsyncIteratorCalls:
        """The iterator calls that all requests share."""
        if self._calls is None:
            self._calls = self.client.iterator_calls()
        return self._calls

    async def check(self, timeout_s: float) -> None:
        """Return when a broker has answered. Raises the reason if none answers in time."""
        await self._checking.metadata([], timeout=timeout_s)

    async def close(self) -> None:
        """Send buffered messages, then close. A message that cannot be sent fails the request that waits for it."""
        try:
            await asyncio.gather(self.client.close(), self._checking.close())
        except MillstreamError as error:
            log.info("client closed with an error", extra={"bootstrap": self.bootstrap, "error": error})


class ServedCluster:
    """Finds the member of one cluster that has a topic, and calls one or all members."""

    def __init__(self, name: str, seeds: Sequence[str], connecting: ClientFactory) -> None:
        self.name = name
        self.seeds = tuple(seeds)
        self.members = tuple(ClusterMember(each, connecting) for each in self.seeds)
        self._homes: dict[str, ClusterMember] = {}

    @property
    def timeout_s(self) -> float:
        """Timeout of each operation."""
        return self.members[0].timeout_s

    async def home(self, topic: str) -> ClusterMember:
        """Return the member that has this topic, or the member that would create it.

        Raises INVALID_TOPIC for an invalid name.
        """
        if len(self.members) == 1:
            return self.members[0]
        found = self._homes.get(topic)
        if found is None:
            check_topic_name(topic)
            found = await self._find(topic)
        return found

    async def homes(self, topics: Iterable[str]) -> dict[ClusterMember, list[str]]:
        """Group these topics by the member that has them."""
        found: dict[ClusterMember, list[str]] = {}
        for topic in topics:
            found.setdefault(await self.home(topic), []).append(topic)
        return found

    async def shares(self, topics: Sequence[str] | None) -> dict[ClusterMember, list[str] | None]:
        """Return the topics to request from each member: those of `topics` that it has (perhaps an empty list), or None
        for all topics.
        """
        if topics is None:
            return dict.fromkeys(self.members)
        homes = await self.homes(topics)
        return {member: homes.get(member, []) for member in self.members}

    async def _find(self, topic: str) -> ClusterMember:
        asked = (member.client.metadata([topic], timeout=self.timeout_s) for member in self.members)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        failure: BaseException | None = None
        for member, answer in zip(self.members, answers, strict=True):
            if isinstance(answer, BaseException):
                failure = answer
            elif topic in answer.topics and not answer.topics[topic].error_number:
                if len(self._homes) >= _HOMES_MAX:
                    self._homes.clear()
                self._homes[topic] = member
                return member
        if failure is not None:
            raise failure  # A member that did not answer may have the topic.
        return self.members[crc32(topic.encode()) % len(self.members)]

    def forget(self, topic: str) -> None:
        """Drop the remembered member of a topic that was deleted or moved."""
        self._homes.pop(topic, None)

    async def all(self, ask: Callable[[ClusterMember], Awaitable[T]]) -> list[T]:
        """Call all members concurrently and return their responses; the first failure is raised."""
        if len(self.members) == 1:
            return [await ask(self.members[0])]
        return list(await asyncio.gather(*map(ask, self.members)))

    async def wherever_known(self, ask: Callable[[ClusterMember], Awaitable[T]]) -> list[T]:
        """Return the responses of the members that know the requested group or client.

        Raises the first member's GROUP_ID_NOT_FOUND or UNKNOWN_MEMBER_ID if no member knows it.
        """

        async def asked(member: ClusterMember) -> T | MillstreamError:
            try:
                return await ask(member)
            except MillstreamError as error:
                if error.code not in _UNKNOWN:
                    raise
                return error

        answers = await self.all(asked)
        found = [answer for answer in answers if not isinstance(answer, MillstreamError)]
        if not found:
            raise next(answer for answer in answers if isinstance(answer, MillstreamError))
        return found

    async def close(self) -> None:
        await asyncio.gather(*(member.close() for member in self.members))


class ServedClusters:
    """All clusters of a gateway. Used on one event loop."""

    def __init__(self, seeds: Mapping[str, Sequence[str]], connecting: ClientFactory | None = None) -> None:
        """Accept one or more seed lists per name, each for one client. Opens no connection."""
        self._connecting = connecting or ClientFactory()
        self._clusters: dict[str, ServedCluster] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.update(seeds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._clusters))

    def get(self, name: str = DEFAULT) -> ServedCluster:
        """Return the cluster of this name. Raises UNKNOWN_CLUSTER, listing the known names, if there is none."""
        found = self._clusters.get(name)
        if found is None:
            known = ", ".join(self.names) or "none"
            text = f"this gateway serves no cluster {name!r}; it serves {known}"
            raise MillstreamError(ErrorCode.UNKNOWN_CLUSTER, text)
        return found

    def update(self, seeds: Mapping[str, Sequence[str]]) -> None:
        """Serve exactly these clusters from now on; removed clusters are closed in the background."""
        for name, cluster in list(self._clusters.items()):
            if tuple(seeds.get(name, ())) != cluster.seeds:
                del self._clusters[name]
                closing = asyncio.get_running_loop().create_task(cluster.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        for name, texts in seeds.items():
            if name not in self._clusters:
                self._clusters[name] = ServedCluster(name, texts, self._connecting)

    async def close(self) -> None:
        """Close all clients after they have sent their buffered messages."""
        clusters, self._clusters = self._clusters, {}
        await asyncio.gather(*(cluster.close() for cluster in clusters.values()), *self._closing)
