"""The clusters that a gateway serves, by name: SDK clients that connect when they are first needed, and again by
themselves when that is needed.

A cluster whose brokers know each other has one member, with one client. Brokers that have a catalog each, as those of
a cluster made by one call do until partitions are replicated, are a member each: a topic lives on the member that has
it, a new one is made where the hash of its name says, and what is listed is listed of all of them.
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
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork

T = TypeVar("T")

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The cluster that is meant where none is named."""

_HOMES_KEPT = 10_000
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class ClientFactory:
    """How clients are made; the seams are for tests."""

    timeout_s: float = 10.0
    """By when an operation is done, or has failed."""
    held_bytes: int = 256 * 1024 * 1024
    """How much a producer may hold."""
    client_id: str = "millstream-gateway"
    network: Network | None = None
    clock: Clock | None = None
    entropy: Entropy | None = None

    def client(self, bootstrap: str) -> AsyncClient:
        """A client that connects when it is first asked for something."""
        home = ClientContext(
            parse_bootstrap(bootstrap),
            network=self.network or TcpNetwork(),
            clock=self.clock or SystemClock(),
            entropy=self.entropy or SystemEntropy(),
            settings=ConnectionSettings(self.client_id, min(5.0, self.timeout_s), self.timeout_s),
        )
        return AsyncClient(AsyncPortal(), home)


class ClusterMember:
    """One client, and what all requests through it share: a producer, and calls for consumers of groups."""

    def __init__(self, bootstrap: str, connecting: ClientFactory) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = connecting.timeout_s
        self.client = connecting.client(bootstrap)
        self.clock = connecting.clock or SystemClock()
        self._held_bytes = connecting.held_bytes
        self._producer: AsyncProducer | None = None
        self._calls: AsyncIteratorCalls | None = None

    @property
    def producer(self) -> AsyncProducer:
        """Writes are waited for one by one, so that nothing lingers; what comes meanwhile goes together."""
        if self._producer is None:
            self._producer = self.client.producer(linger=0, timeout=self.timeout_s, max_bytes=self._held_bytes)
        return self._producer

    @property
    def calls(self) -> AsyncIteratorCalls:
        """Calls for consumers of groups, which all requests share."""
        if self._calls is None:
            self._calls = self.client.iterator_calls()
        return self._calls

    async def close(self) -> None:
        """What is on its way is sent first; what cannot be was told to whoever waited for it."""
        try:
            await self.client.close()
        except MillstreamError as error:
            log.info("a client of %s was closed: %s", self.bootstrap, error)


class ServedCluster:
    """Where the topics of one cluster are."""

    def __init__(self, name: str, seeds: Sequence[str], connecting: ClientFactory) -> None:
        self.name = name
        self.seeds = tuple(seeds)
        self.members = tuple(ClusterMember(each, connecting) for each in self.seeds)
        self._homes: dict[str, ClusterMember] = {}

    @property
    def timeout_s(self) -> float:
        """By when an operation is done, or has failed."""
        return self.members[0].timeout_s

    async def home(self, topic: str) -> ClusterMember:
        """The member that has this topic; where none has, the one that would make it. INVALID_TOPIC for no name."""
        if len(self.members) == 1:
            return self.members[0]
        found = self._homes.get(topic)
        if found is None:
            check_topic_name(topic)
            found = await self._find(topic)
        return found

    async def homes(self, topics: Iterable[str]) -> dict[ClusterMember, list[str]]:
        """Who has which of these topics."""
        found: dict[ClusterMember, list[str]] = {}
        for topic in topics:
            found.setdefault(await self.home(topic), []).append(topic)
        return found

    async def shares(self, topics: Sequence[str] | None) -> dict[ClusterMember, list[str] | None]:
        """What to ask each member about: those of the topics that it has, perhaps none; None: all that it has."""
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
                if len(self._homes) >= _HOMES_KEPT:
                    self._homes.clear()
                self._homes[topic] = member
                return member
        if failure is not None:
            raise failure  # Whoever did not answer may have it.
        return self.members[crc32(topic.encode()) % len(self.members)]

    def forget(self, topic: str) -> None:
        """Where this topic is has proved wrong, or it is gone."""
        self._homes.pop(topic, None)

    async def all(self, ask: Callable[[ClusterMember], Awaitable[T]]) -> list[T]:
        """The answers of all members; the first failure is raised."""
        if len(self.members) == 1:
            return [await ask(self.members[0])]
        return list(await asyncio.gather(*map(ask, self.members)))

    async def wherever_known(self, ask: Callable[[ClusterMember], Awaitable[T]]) -> list[T]:
        """The answers of the members that know the group or the client asked about; when none does, what the first one
        says: GROUP_ID_NOT_FOUND or UNKNOWN_MEMBER_ID."""

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
    """All of them. Made anywhere, used on one event loop."""

    def __init__(self, seeds: Mapping[str, Sequence[str]], connecting: ClientFactory | None = None) -> None:
        """For each name one or more seed lists, each for a client of its own; nothing is connected yet."""
        self._connecting = connecting or ClientFactory()
        self._clusters: dict[str, ServedCluster] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.tell(seeds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._clusters))

    def get(self, name: str = DEFAULT) -> ServedCluster:
        """The cluster of this name; UNKNOWN_CLUSTER, naming those there are, when there is none."""
        found = self._clusters.get(name)
        if found is None:
            known = ", ".join(self.names) or "none"
            text = f"this gateway serves no cluster {name!r}; it serves {known}"
            raise MillstreamError(ErrorCode.UNKNOWN_CLUSTER, text)
        return found

    def tell(self, seeds: Mapping[str, Sequence[str]]) -> None:
        """From now on there are these and no others; what is gone is closed in the background."""
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
        """End all clients, after what is on its way."""
        clusters, self._clusters = self._clusters, {}
        await asyncio.gather(*(cluster.close() for cluster in clusters.values()), *self._closing)
