"""The cluster as the client knows it: which brokers there are, who leads what, and the connections to them.

The view is a memory, and may be old: whoever is refused by a broker that no longer leads says so (`forget`), and the
next question asks the cluster again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from millstream import __version__
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import check_new_topic_name, check_topic_name
from millstream.sdk import requests
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.connection import BrokerConnection, not_answered
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.metrics import NO_METRICS, Metrics
from millstream.sdk.responses import Broker, ClusterView, TopicView, refusal
from millstream.seams.network import Network
from millstream.wire.client_connection import ConnectionCore

_log = logging.getLogger("millstream.sdk.cluster")

REMEMBER_S = 300.0
"""How long a topic's description is used: who adds partitions does not tell every client."""


Greet = Callable[[BrokerConnection, float], Awaitable[None]]


class UnreachableError(MillstreamError):
    """No broker of those we know of could be talked to. Not to be retried where none of the failures is."""

    def __init__(self, failures: Sequence[MillstreamError]) -> None:
        final = all(not error.code.retriable for error in failures)
        code = failures[0].code if final else ErrorCode.NETWORK_EXCEPTION
        reasons = "; ".join(error.detail for error in failures)
        super().__init__(code, reasons if code is ErrorCode.VERSION_WINDOW else f"no broker can be reached: {reasons}")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    client_id: str = "millstream"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 10.0
    """How long one answer may take; the operation's own deadline may be shorter."""


class Cluster:
    """Connections by address, and the last description of the cluster.

    Long polls hold up everything behind them on their connection, since answers keep order. So each has a connection
    of its own while it runs (`polling`); idle ones are kept for the next.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        network: Network,
        settings: ConnectionSettings,
        greet: Greet | None = None,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """`greet` is awaited on every new connection before anybody uses it; what it raises, the connection ends by."""
        self.seeds = tuple(seeds)
        self.machine = network.machine
        """Where this client runs."""
        self._network = network
        self._settings = settings
        self._greet = greet
        self.metrics = metrics
        self._connections: dict[Address, BrokerConnection] = {}
        self._idle_pollers: dict[Address, list[BrokerConnection]] = {}
        self._busy_pollers: dict[BrokerConnection, None] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, tuple[float, TopicView]] = {}
        self._closed = False
        self.controller_id = -1

    def close(self) -> None:
        """End every connection; what waits on them fails."""
        self._closed = True
        idle = [connection for pool in self._idle_pollers.values() for connection in pool]
        for connection in [*self._connections.values(), *idle, *self._busy_pollers]:
            connection.close()
        self._connections.clear()
        self._idle_pollers.clear()

    def forget(self, topic: str) -> None:
        """What is remembered of this topic has proved wrong."""
        self._topics.pop(topic, None)

    async def anyone(self, deadline: Deadline) -> BrokerConnection:
        """A connection to whichever broker answers: an open one, then those known, then the seeds.

        Those that are still to be tried share what is left of the time, so that a silent one leaves some to the others.
        """
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = [Address(broker.host, broker.port) for broker in self._brokers.values()]
        failures: list[MillstreamError] = []
        addresses = list(dict.fromkeys([*known, *self.seeds]))
        for tried, address in enumerate(addresses):
            try:
                return await self.to(address, Deadline(deadline.left_s / (len(addresses) - tried)))
            except MillstreamError as error:
                failures.append(error)
        raise UnreachableError(failures)

    async def to(self, address: Address, deadline: Deadline) -> BrokerConnection:
        """The shared connection to this broker; whoever has to wait for another to open it waits no longer either."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            async with self._turn_to_open(address, deadline):
                connection = self._connections.get(address)
                if connection is None or connection.closed:
                    self._connections[address] = connection = await self._opened(address, deadline)
        return connection

    def open_connection(self, address: Address) -> BrokerConnection | None:
        """One to this broker that is open and that nobody polls with."""
        shared = [self._connections[address]] if address in self._connections else []
        free = [each for each in [*shared, *self._idle_pollers.get(address, ())] if not each.closed]
        return free[0] if free else None

    @asynccontextmanager
    async def _turn_to_open(self, address: Address, deadline: Deadline) -> AsyncIterator[None]:
        turn, timeout_s = self._opening.setdefault(address, asyncio.Lock()), deadline.left_s
        try:
            async with asyncio.timeout(timeout_s):
                await turn.acquire()
        except TimeoutError:
            raise not_answered(address, timeout_s) from None
        try:
            yield
        finally:
            turn.release()

    @asynccontextmanager
    async def polling(self, address: Address, deadline: Deadline) -> AsyncIterator[BrokerConnection]:
        """A connection to this broker that nobody else uses meanwhile."""
        pool = self._idle_pollers.setdefault(address, [])
        connection = None
        while pool and connection is None:
            candidate = pool.pop()
            connection = None if candidate.closed else candidate
        if connection is None:
            connection = await self._opened(address, deadline)
        self._busy_pollers[connection] = None
        try:
            yield connection
        finally:
            del self._busy_pollers[connection]
            if connection.waiting:
                connection.close()  # Its poll was given up; the late answer is of no use to anybody.
            elif not connection.closed:
                pool.append(connection)

    async def controller(self, deadline: Deadline) -> BrokerConnection:
        """The broker that creates and deletes topics."""
        await self.refresh([], deadline)
        broker = self._brokers.get(self.controller_id)
        if broker is None:
            return await self.anyone(deadline)
        return await self.to(Address(broker.host, broker.port), deadline)

    async def broker(self, node_id: int, deadline: Deadline) -> BrokerConnection:
        """The broker of this number; RESOURCE_NOT_FOUND, naming those there are, when the cluster has no such one."""
        if node_id not in self._brokers:
            await self.refresh([], deadline)
        broker = self._brokers.get(node_id)
        if broker is None:
            known = ", ".join(map(str, sorted(self._brokers)))
            raise MillstreamError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {node_id}; there are {known}")
        return await self.to(Address(broker.host, broker.port), deadline)

    def remembered(self, name: str) -> TopicView | None:
        """The topic as the cluster has described it not too long ago."""
        asked_s, view = self._topics.get(name, (0.0, None))
        if view is not None and asyncio.get_running_loop().time() - asked_s > REMEMBER_S:
            return None
        return view

    def open_leader(self, topic: str, partition: int) -> BrokerConnection | None:
        """The open connection to the partition's leader, if both are known."""
        view = self.remembered(topic)
        found = view and view.partition(partition)
        broker = found and self._brokers.get(found.leader_id)
        connection = None if broker is None else self._connections.get(Address(broker.host, broker.port))
        return None if connection is None or connection.closed else connection

    async def topic(self, name: str, deadline: Deadline, *, auto_create: bool = False) -> TopicView:
        """The topic as remembered, or as the cluster describes it now; its error there is raised."""
        view = self.remembered(name) or (await self.topics([name], deadline, auto_create=auto_create))[name]
        if isinstance(view, MillstreamError):
            raise view
        return view

    async def topics(
        self, names: Sequence[str], deadline: Deadline, *, auto_create: bool = False
    ) -> dict[str, TopicView | MillstreamError]:
        """These as remembered, or as the cluster describes them now, asked once for all; errors there are values."""
        for name in names:
            check_topic_name(name)
        known: dict[str, TopicView | MillstreamError] = {}
        for name in names:
            view = self.remembered(name)
            if view is not None:
                known[name] = view
        unknown = [name for name in names if name not in known]
        if unknown:
            described = await self.refresh(unknown, deadline, auto_create=auto_create)
            known |= {name: _described(name, described) for name in unknown}
        return known

    async def same_topic(self, name: str, topic_id: UUID, deadline: Deadline) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION when the topic's id is another than this: it was made again."""
        if (await self.topic(name, deadline)).topic_id != topic_id:
            text = f"topic {name!r} was deleted and made again; what was read of it is no place in the new one"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    async def leader(self, topic: str, partition: int, deadline: Deadline, *, auto_create: bool = False) -> Address:
        """Where the partition's leader listens."""
        view = await self.topic(topic, deadline, auto_create=auto_create)
        found = view.partition(partition)
        if found is None:
            self.forget(topic)
            text = f"topic {topic!r} has no partition {partition}; it has 0 to {len(view.partitions) - 1}"
            raise MillstreamError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        broker = self._brokers.get(found.leader_id)
        if broker is None:
            self.forget(topic)
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE.number, f"{topic}-{partition}")
        return Address(broker.host, broker.port)

    async def refresh(
        self, topics: Sequence[str] | None, deadline: Deadline, *, auto_create: bool = False
    ) -> ClusterView:
        """Ask for these topics, or all (None), and remember the answer."""
        connection = await self.anyone(deadline)
        request = requests.metadata(topics, auto_create=auto_create)
        view = await connection.request(request, self.timeout_s(deadline))
        self._brokers = dict(view.brokers)
        self.controller_id = view.controller_id
        for name, topic in view.topics.items():
            if topic.error_number or any(row.leader_id < 0 for row in topic.partitions):
                self.forget(name)
            else:
                self._topics[name] = (asyncio.get_running_loop().time(), topic)
        return view

    async def heard(self) -> None:
        """Wait until the brokers have read all that was sent to them: each answers a question that comes behind it.

        A connection that is lost meanwhile is not waited for.
        """
        for connection in list(self._connections.values()):
            with suppress(MillstreamError):
                request = requests.metadata([], auto_create=False)
                await connection.request(request, self._settings.request_timeout_s)

    def connecting(self) -> Deadline:
        """Time enough to try each seed once."""
        return Deadline(self._settings.connect_timeout_s * len(self.seeds))

    def timeout_s(self, deadline: Deadline, extra_s: float = 0.0) -> float:
        """How long one answer may take within the deadline."""
        return deadline.within(self._settings.request_timeout_s + extra_s)

    def broker_timeout_ms(self, deadline: Deadline) -> int:
        """What a broker is told, a little less than what we wait ourselves, so that it can still say so."""
        return max(1, int(self.timeout_s(deadline) * 900))

    async def _opened(self, address: Address, deadline: Deadline) -> BrokerConnection:
        labels = {"broker": str(address)}
        try:
            connection = await self._open(address, deadline)
        except MillstreamError as error:
            _log.info("no connection to %s: %s", address, error)
            self.metrics.count("connections_failed", 1, labels)
            raise
        _log.debug("connected to %s", address)
        self.metrics.count("connections_opened", 1, labels)
        return connection

    async def _open(self, address: Address, deadline: Deadline) -> BrokerConnection:
        self._check_open()

        def make_core() -> ConnectionCore:
            return ConnectionCore(self._settings.client_id, requests.api_versions("millstream", __version__))

        connection = await BrokerConnection.open(
            self._network,
            address,
            make_core,
            timeout_s=deadline.within(self._settings.connect_timeout_s),
            overdue_s=self._settings.request_timeout_s,
            metrics=self.metrics,
        )
        try:
            if self._greet is not None:
                await self._greet(connection, self.timeout_s(deadline))
            self._check_open()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise MillstreamError(ErrorCode.CLIENT_CLOSED, "the client is closed")


def _described(name: str, cluster: ClusterView) -> TopicView | MillstreamError:
    view = cluster.topics.get(name)
    if view is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number, f"topic {name!r}")
    if view.error_number == ErrorCode.INVALID_TOPIC.number:
        try:
            check_new_topic_name(name)  # Such an answer has no room for what is wrong with it.
        except MillstreamError as error:
            return error
    return refusal(view.error_number, f"topic {name!r}") if view.error_number else view
