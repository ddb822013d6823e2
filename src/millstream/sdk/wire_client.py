"""A client near the wire: for who looks at batches, offsets and single answers themselves, as programs rarely do.

The command line asks with it, since it shows what is stored as it is stored; the simulation does, since it writes down
each question and its answer, and numbers batches of its own. Programs have `millstream.connect`. What writes and reads
for good is the same in both: `producer` and `consumer` here are the public ones.

Every operation has a deadline; within it, what may be retried is retried, at whichever broker is right by then. Only
the seams (network, clock, chance) and the event loop's timers are used, so that a simulation can run it unmodified.
"""

from collections.abc import Sequence
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
from millstream.sdk.producing.leader_route import ask_identity
from millstream.sdk.producing.options import ALL, ProducerOptions
from millstream.sdk.responses import FetchedBatches, Produced, ProducerIdentity
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import ThreadWorkers, Workers


class WireClient(ClusterQueries):
    """One cluster, asked for single things; connects when it is first needed. Use `async with`, or `close()` it."""

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
        """A client that has reached a broker; the seeds are tried until `timeout_s` is over, or each of them once."""
        client = cls(bootstrap, network=network, clock=clock, entropy=entropy, workers=workers, connection=connection)
        try:
            await client.reach(timeout_s)
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        """End all connections; operations that still run fail."""
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
        """Send one encoded batch as it is, in one attempt: only its maker knows whether a second is safe.

        A ConnectionLostError leaves open whether it was stored.
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
        """A new identity, for batches that the caller numbers itself and sends with `produce`."""
        return await ask_identity(self._asking, Deadline(timeout_s))

    def producer(self, options: ProducerOptions) -> AsyncProducer:
        """What the public client's producer is, with connections of its own; to be closed before this."""
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
        """Messages from `offset` on, about `max_bytes` of them; waits up to `max_wait_ms` for the first.

        An offset beyond the end waits likewise, and brings nothing when it is not reached. One before the beginning
        is OFFSET_OUT_OF_RANGE, which says where the partition begins.
        """
        where = TopicPartition(topic, partition)
        return await get(self._asking, where, offset, read_batches, max_bytes, max_wait_ms, timeout_s)

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
        """As `fetch`, but the batches as they are stored: unopened and unchecked, marks and empty ones included."""
        where = TopicPartition(topic, partition)
        return await get(self._asking, where, offset, lambda answer, _: answer, max_bytes, max_wait_ms, timeout_s)

    def consumer(self, topics: str | Sequence[str], **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """What the public client's consumer is, with connections of its own; to be closed before this."""
        return AsyncConsumer(AsyncPortal(), self._context, topics, **options)
