"""Caches cluster metadata (brokers, topics, leaders), and manages the connections to brokers.

The cache may be outdated. A caller whose request to a leader fails calls `leader_failed`. The next request then goes to
the leader that the refusal names, or the next lookup requests the metadata again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from millstream import __version__
from millstream.model.errors import ErrorCode, MillstreamError, UnreachableError
from millstream.model.names import TopicPartition, check_new_topic_name, check_topic_name
from millstream.process.log_event import LogEvent
from millstream.sdk import requests
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.connection.connection import BrokerConnection, connect, not_answered
from millstream.sdk.connection.metadata_cache import MetadataCache
from millstream.sdk.connection.outage import ConnectionHealth, OutageWatch
from millstream.sdk.connection.reconnecting import Reconnecting
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.silence import SilenceWatch, probe
from millstream.sdk.metrics import NO_METRICS, Metrics
from millstream.sdk.responses import ClusterView, TopicView, refusal
from millstream.seams.entropy import Entropy
from millstream.seams.network import Network
from millstream.wire.client_connection import ConnectionCore
from millstream.wire.greeting import api_versions

_log = logging.getLogger("millstream.sdk.cluster")

OnConnect = Callable[[BrokerConnection, float], Awaitable[None]]


class NoBrokerError(UnreachableError):
    """No known broker could be reached. The error is retriable if the failure of at least one broker is retriable."""

    def __init__(self, failures: Sequence[MillstreamError], origin: str = "") -> None:
        final = all(not error.code.retriable for error in failures)
        code = failures[0].code if final else ErrorCode.NETWORK_EXCEPTION
        reasons = "; ".join(error.detail for error in failures)
        text = reasons if code is ErrorCode.VERSION_WINDOW else f"no broker can be reached: {reasons}"
        super().__init__(code, f"{text} (the address is from {origin})" if origin else text)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    client_id: str = "millstream"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 10.0
    """Timeout of one request; the deadline of the operation may be shorter."""
    bootstrap_origin: str = ""
    """Where the bootstrap address was found, for errors; empty if the application passed it."""


class Cluster:
    """Holds one shared connection per broker, and the cached metadata.

    Responses arrive in request order, so a long poll delays every later response on its connection. Each long poll
    therefore uses its own connection while it runs (`polling`). Idle poll connections are reused.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        network: Network,
        settings: ConnectionSettings,
        handshake: OnConnect | None = None,
        metrics: Metrics = NO_METRICS,
        owner: str = "client",
        entropy: Entropy | None = None,
    ) -> None:
        """`handshake` is awaited on every new connection before it is used; its exceptions close the connection.

        `owner` names the user of the connections in log lines. With `entropy`, which draws the jitter of the backoff,
        lost connections are opened again in the background.
        """
        self.seeds = tuple(seeds)
        self.machine = network.machine
        """The machine on which this client runs."""
        self._network = network
        self._settings = settings
        self._handshake = handshake
        self.metrics = metrics
        self.outages = OutageWatch(owner)
        self._reconnecting = None if entropy is None else Reconnecting(self._reconnected, entropy)
        self._connections: dict[Address, BrokerConnection] = {}
        self._idle_pollers: dict[Address, list[BrokerConnection]] = {}
        self._busy_pollers: dict[BrokerConnection, None] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._metadata = MetadataCache()
        self._closed = False
        self.controller_id = -1

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        self._closed = True
        self.outages.close()
        if self._reconnecting is not None:
            self._reconnecting.close()
        idle = [connection for pool in self._idle_pollers.values() for connection in pool]
        for connection in [*self._connections.values(), *idle, *self._busy_pollers]:
            connection.close()
        self._connections.clear()
        self._idle_pollers.clear()

    def forget(self, topic: str) -> None:
        """Request the metadata of this topic again at the next lookup."""
        self._metadata.forget(topic)

    def leader_failed(self, where: TopicPartition, asked: str, error: MillstreamError) -> PartitionLeader | None:
        """Note that a request to the leader `asked` failed; returns the leader that its refusal names, if any."""
        return self._metadata.leader_failed(where, asked, error)

    async def anyone(self, deadline: Deadline) -> BrokerConnection:
        """Return a connection to any broker: an open one, or else to a known broker, or else to a seed.

        The remaining time is divided among the untried addresses, so that one silent broker does not use all of it.
        """
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failures: list[MillstreamError] = []
        addresses = list(dict.fromkeys([*self._known(), *self.seeds]))
        for tried, address in enumerate(addresses):
            try:
                return await self.to(address, Deadline(deadline.left_s / (len(addresses) - tried)))
            except MillstreamError as error:
                failures.append(error)
        raise NoBrokerError(failures, self._settings.bootstrap_origin)

    async def to(self, address: Address, deadline: Deadline) -> BrokerConnection:
        """Return the shared connection to this broker. The deadline also limits waiting for another caller's open."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            async with self._turn_to_open(address, deadline):
                connection = self._connections.get(address)
                if connection is None or connection.closed:
                    self._connections[address] = connection = await self._opened(address, deadline)
        return connection

    def open_connection(self, address: Address) -> BrokerConnection | None:
        """Return an open connection to this broker without a running long poll; None if there is none."""
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
        """Provide a connection to this broker that no other caller uses meanwhile."""
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
                connection.close()  # The poll was cancelled; its late response would delay the next poll.
            elif not connection.closed:
                pool.append(connection)

    async def controller(self, deadline: Deadline) -> BrokerConnection:
        """Return a connection to the controller, which creates and deletes topics."""
        await self.refresh([], deadline)
        address = self._metadata.address(self.controller_id)
        return await (self.anyone(deadline) if address is None else self.to(address, deadline))

    async def broker(self, node_id: int, deadline: Deadline) -> BrokerConnection:
        """Return a connection to broker `node_id`; raises RESOURCE_NOT_FOUND, which lists the existing brokers."""
        if node_id not in self._metadata.brokers:
            await self.refresh([], deadline)
        address = self._metadata.address(node_id)
        if address is None:
            known = ", ".join(map(str, sorted(self._metadata.brokers)))
            raise MillstreamError(
                ErrorCode.RESOURCE_NOT_FOUND, f"broker {node_id} does not exist; existing brokers: {known}"
            )
        return await self.to(address, deadline)

    def remembered(self, name: str) -> TopicView | None:
        """Return the cached metadata of a topic; None if it is missing or too old."""
        return self._metadata.topic(name, asyncio.get_running_loop().time())

    def leader_epoch(self, where: TopicPartition) -> int:
        """Return the epoch of the cached leader; NO_LEADER_EPOCH if there is none."""
        return self._metadata.leader_epoch(where, asyncio.get_running_loop().time())

    def open_leader(self, topic: str, partition: int) -> BrokerConnection | None:
        """Return the open connection to the partition's leader; None if leader or connection are missing."""
        found = self._metadata.partition(TopicPartition(topic, partition), asyncio.get_running_loop().time())
        address = found and self._metadata.address(found.leader_id)
        connection = address and self._connections.get(address)
        return None if connection is None or connection.closed else connection

    async def topic(self, name: str, deadline: Deadline, *, auto_create: bool = False) -> TopicView:
        """Return the metadata of a topic, from the cache or the cluster; raises the topic's error."""
        view = self.remembered(name) or (await self.topics([name], deadline, auto_create=auto_create))[name]
        if isinstance(view, MillstreamError):
            raise view
        return view

    async def topics(
        self, names: Sequence[str], deadline: Deadline, *, auto_create: bool = False
    ) -> dict[str, TopicView | MillstreamError]:
        """Return the metadata of several topics with at most one request. Errors of single topics are values."""
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
            known |= {name: self.remembered(name) or _described(name, described) for name in unknown}
        return known

    async def leader(self, topic: str, partition: int, deadline: Deadline, *, auto_create: bool = False) -> Address:
        """Return the address of the partition's leader."""
        return self.leader_in(await self.topic(topic, deadline, auto_create=auto_create), partition).address

    def leader_in(self, view: TopicView, partition: int) -> PartitionLeader:
        """Return the partition's leader in the topic's metadata; without a leader, the metadata is dropped."""
        return self._metadata.leader_in(view, partition)

    async def refresh(
        self, topics: Sequence[str] | None, deadline: Deadline, *, auto_create: bool = False
    ) -> ClusterView:
        """Request the metadata of these topics, or of all (None), and cache the response."""
        connection = await self.anyone(deadline)
        request = requests.metadata(topics, auto_create=auto_create)
        view = await connection.request(request, self.timeout_s(deadline))
        self._metadata.update(view, asyncio.get_running_loop().time())
        self.controller_id = view.controller_id
        return view

    async def wait_until_received(self) -> None:
        """Wait until the brokers have read all requests: each answers one more request on every connection.

        Lost connections are ignored.
        """
        for connection in list(self._connections.values()):
            with suppress(MillstreamError):
                request = requests.metadata([], auto_create=False)
                await connection.request(request, self._settings.request_timeout_s)

    def health(self, held_bytes: int = 0) -> ConnectionHealth:
        """Return whether the brokers are reachable. Probes idle connections, so that a later call reports silence."""
        probe(self._connections.values(), self._settings.request_timeout_s)
        return self.outages.health(held_bytes)

    def connecting(self) -> Deadline:
        """Return a deadline that is long enough to try each seed once."""
        return Deadline(self._settings.connect_timeout_s * len(self.seeds))

    def timeout_s(self, deadline: Deadline, extra_s: float = 0.0) -> float:
        """Return the timeout of one request within the deadline."""
        return deadline.within(self._settings.request_timeout_s + extra_s)

    def broker_timeout_ms(self, deadline: Deadline) -> int:
        """Return the timeout to send to a broker: 90 % of the request timeout, so that its error arrives in time."""
        return max(1, int(self.timeout_s(deadline) * 900))

    async def _opened(self, address: Address, deadline: Deadline) -> BrokerConnection:
        labels = {"broker": str(address)}
        try:
            with self.outages.attempt(address):
                connection = await self._open(address, deadline)
        except MillstreamError as error:
            _log.debug(LogEvent("connection failed", broker=str(address), error=error))
            self.metrics.count("connections_failed", 1, labels)
            raise
        self._reached(address)
        _log.debug(LogEvent("connection opened", broker=str(address)))
        self.metrics.count("connections_opened", 1, labels)
        return connection

    async def _open(self, address: Address, deadline: Deadline) -> BrokerConnection:
        self._check_open()

        def make_core() -> ConnectionCore:
            return ConnectionCore(self._settings.client_id, api_versions("millstream", __version__))

        connection = await connect(
            self._network,
            address,
            make_core,
            timeout_s=deadline.within(self._settings.connect_timeout_s),
            overdue_s=self._settings.request_timeout_s,
            metrics=self.metrics,
            on_lost=partial(self._lost, address),
            silence=SilenceWatch(address, self.outages, partial(self._reached, address)),
        )
        try:
            if self._handshake is not None:
                await self._handshake(connection, self.timeout_s(deadline))
            self._check_open()
        except BaseException:
            connection.close()
            raise
        return connection

    def _known(self) -> list[Address]:
        """Return the addresses of the brokers in the metadata."""
        return [Address(broker.host, broker.port) for broker in self._metadata.brokers.values()]

    def _reached(self, address: Address) -> None:
        self.outages.reached(address, self._known())

    def _lost(self, address: Address) -> None:
        if self._reconnecting is not None and not self._closed:
            self._reconnecting.begin(address)

    async def _reconnected(self, address: Address) -> bool:
        """Try once to reach a broker again. Returns True if it is reached or not needed any more."""
        with suppress(MillstreamError):
            await self.to(address, Deadline(self._settings.connect_timeout_s))
            return True
        if any(not connection.closed for connection in self._connections.values()):
            with suppress(MillstreamError):  # Another broker reports if this one has left the cluster.
                await self.refresh([], Deadline(self._settings.request_timeout_s))
        return self._closed or address not in (self._known() or self.seeds)

    def _check_open(self) -> None:
        if self._closed:
            raise MillstreamError(ErrorCode.CLIENT_CLOSED, "the client is closed")


def _described(name: str, cluster: ClusterView) -> TopicView | MillstreamError:
    view = cluster.topics.get(name)
    if view is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number, f"topic {name!r}")
    if view.error_number == ErrorCode.INVALID_TOPIC.number:
        try:
            check_new_topic_name(name)  # The response has no error text, so find the reason here.
        except MillstreamError as error:
            return error
    return refusal(view.error_number, f"topic {name!r}") if view.error_number else view
