"""Provides a low-level client that exposes record batches, offsets and single responses.

The command line uses it to show batches as they are stored. The simulation uses it to record each request with its
response, and to number its own batches. Applications use `millstream.connect` instead. The `producer` and `consumer` of
both clients are the same classes.

Every operation has a deadline. Until then, retriable failures are retried, at the broker that is responsible by then.
The client uses only the seams (network, clock, entropy) and the event loop's timers, so that a simulation can run it
unmodified.
"""

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.producer import AsyncProducer, make_producer
from millstream.sdk.client_context import WORKERS, ClientContext
from millstream.sdk.cluster_queries import OPERATION_TIMEOUT_S, ClusterQueries
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.cluster import Cluster, ConnectionSettings
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.options import ConsumerOptions
from millstream.sdk.fetching import MAX_BYTES, MAX_WAIT_MS, FetchResult, get, read_batches
from millstream.sdk.producing.leader_route import request_identity
from millstream.sdk.producing.options import ALL, ProducerSettings
from millstream.sdk.responses import FetchedBatches, Produced, ProducerIdentity
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import ThreadWorkers, Workers


class WireClient(ClusterQueries):
    """Sends single requests to one cluster. It connects on first use; use `async with` or call `close()`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        workers: Workers | None = None,
        connection: ConnectionSettings | None = None,
    ) -> None:
        self._entropy = entropy or SystemEntropy()
        self._workers = workers or ThreadWorkers(WORKERS, "millstream-worker")
        self._context = ClientContext(
            parse_bootstrap(bootstrap),
            network=network or TcpNetwork(),
            clock=clock or SystemClock(),
            entropy=self._entropy,
            workers=self._workers,
            settings=connection or ConnectionSettings(),
        )
        cluster = Cluster(self._context.seeds, network or TcpNetwork(), self._context.settings)
        super().__init__(RetryingCaller(cluster, self._entropy, self._workers), self._context.clock)

    @classmethod
    async def connect(
        cls,
        bootstrap: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        workers: Workers | None = None,
        connection: ConnectionSettings | None = None,
    ) -> Self:
        """Create a client and connect it to a broker. Seeds are tried until `timeout_s` is over; None: each once."""
        client = cls(bootstrap, network=network, clock=clock, entropy=entropy, workers=workers, connection=connection)
        try:
            await client.reach(timeout_s)
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        """Close all connections; running operations fail."""
        self._cluster.close()
        self._workers.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing.

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes | bytearray,
        *,
        acks: int = ALL,
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> Produced:
        """Send one encoded batch unchanged, without retries: only the caller knows whether a retry is safe.

        After a ConnectionLostError the outcome is unknown.
        """
        deadline = Deadline(timeout_s)
        where = TopicPartition(topic, partition)
        try:
            address = await self._cluster.leader(topic, partition, deadline, auto_create=True)
            connection = await self._cluster.to(address, deadline)
            request = requests.produce(where, batch, acks=acks, timeout_ms=self._cluster.broker_timeout_ms(deadline))
            produced = await connection.request(request, self._cluster.timeout_s(deadline))
        except MillstreamError:
            self._cluster.forget(topic)
            raise
        return produced if acks else Produced(-1, -1, -1)

    async def producer_identity(self, *, timeout_s: float = OPERATION_TIMEOUT_S) -> ProducerIdentity:
        """Request a producer id for batches that the caller numbers itself and sends with `produce`."""
        return await request_identity(self._caller, Deadline(timeout_s))

    def producer(self, options: ProducerSettings) -> AsyncProducer:
        """Create a producer like the public client's, with its own connections. Close it before this client."""
        return make_producer(AsyncPortal(), self._context, None, options)

    # Reading.

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = MAX_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        timeout_s: float | None = None,
    ) -> FetchResult:
        """Return messages from `offset` on, about `max_bytes`; waits for the first one for up to `max_wait_ms`.

        An offset after the log end waits too, and returns no messages if it is not reached. Raises OFFSET_OUT_OF_RANGE,
        which names the log start offset, if `offset` is before it.
        """
        where = TopicPartition(topic, partition)
        return await get(
            self._caller,
            where,
            offset,
            partial(read_batches, where=where),
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            timeout_s=timeout_s,
        )

    async def fetch_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = MAX_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        timeout_s: float | None = None,
    ) -> FetchedBatches:
        """Return the stored batches of `fetch`, neither decoded nor checked, with markers and empty batches."""
        where = TopicPartition(topic, partition)
        return await get(
            self._caller,
            where,
            offset,
            lambda answer, _: answer,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            timeout_s=timeout_s,
        )

    def consumer(self, topics: str | Sequence[str], **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Create a consumer like the public client's, with its own connections. Close it before this client."""
        return AsyncConsumer(AsyncPortal(), self._context, topics, **options)
