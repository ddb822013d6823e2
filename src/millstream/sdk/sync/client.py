# Written by scripts/sync.py from aio/client.py: change that, and run it again.
"""The client: idle by itself. It answers questions about the cluster, and makes what writes and reads."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin.service_map import BackupMap, ServiceMap
from millstream.sdk.arguments import INT16_MAX, INT32_MAX, by_place, check_callback, check_number, names_or_all, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.cluster_queries import DriftInfo
from millstream.sdk.connection.address import parse_bootstrap
from millstream.sdk.connection.clock_drift import ClockDrift, DriftWatch, OnClockDrift
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.sdk.metrics import Metrics
from millstream.sdk.producing.options import (
    ALL,
    BATCH_BYTES,
    BATCH_COUNT,
    LINGER_S,
    MAX_BYTES,
    ROOM_TIMEOUT_S,
    TIMEOUT_S,
    ProducerOptions,
)
from millstream.sdk.responses import ClusterView, ListedOffset, TopicView
from millstream.sdk.sync.admin import Admin
from millstream.sdk.sync.facade import Facade, Portal, opening
from millstream.sdk.sync.groups import Groups
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import Workers

if TYPE_CHECKING:  # Who only asks, or only writes, does not wait for the rest to be imported.
    from millstream.sdk.consuming.options import ConsumerOptions
    from millstream.sdk.iterating.options import IteratorOptions
    from millstream.sdk.subscribing.options import SubscriptionOptions
    from millstream.sdk.sync.consumer import Consumer
    from millstream.sdk.sync.iterator_calls import IteratorCalls
    from millstream.sdk.sync.iterators import Iterators
    from millstream.sdk.sync.numbered_writer import NumberedWriter
    from millstream.sdk.sync.producer import Producer
    from millstream.sdk.sync.subscription import Subscription
    from millstream.sdk.watching.read_positions import Position
    from millstream.sdk.watching.read_result import ReadResult


class Client(Facade):
    """A client of one cluster, made by `millstream.connect`. Use `with`, or `close()` it.

    Many may use it at once: tasks of its event loop or, where it blocks, threads. Closing it closes the producers
    and consumers it made; producers first send what they have.
    """

    def __init__(self, portal: Portal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        portal.at_end(context.lifecycle.close)
        self._engine = context.cluster_queries
        self.admin = Admin(portal, context)
        """Settings, partitions, sizes, queries."""
        self.groups = Groups(portal, context)
        """Groups seen from outside: who belongs to them and how far they are."""

    def close(self) -> None:
        """Close what it made, then its own connections; a second time does nothing."""
        try:
            super().close()
        finally:
            self._portal.close()

    # About the cluster.

    def metadata(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> ClusterView:
        """The cluster with these topics, or all; a topic that cannot be described carries its error's number."""
        return self._do(self._engine.metadata(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    def info(self, *, node_id: int | None = None, timeout: Time = 30.0) -> DriftInfo:
        """What a broker, this one or any, says of itself; UNSUPPORTED_VERSION from one that is not ours."""
        if node_id is not None:
            check_number("node_id", node_id, 0, INT32_MAX)
        return self._do(self._engine.info(node_id=node_id, timeout_s=self._span_s(timeout)))

    def clock_drift(self, *, timeout: Time = 30.0) -> ClockDrift:
        """How far this machine's clock is ahead of the brokers' average, and of each broker; negative: behind.

        UNSUPPORTED_VERSION when no broker tells its time, as Apache Kafka's do not.
        """
        return self._do(self._engine.clock_drift(timeout_s=self._span_s(timeout)))

    def service_map(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> ServiceMap:
        """Which service runs where, and who leads the partitions of these topics, of all, or (empty) of none.

        UNSUPPORTED_VERSION from a broker that is not ours, as for `backup_map`.
        """
        return self._do(self._engine.service_map(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    def backup_map(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> BackupMap:
        """Who follows the partitions of these topics, or of all, and how far each of them is."""
        return self._do(self._engine.backup_map(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    # Topics.

    def list_topics(self, *, internal: bool = False, timeout: Time = 30.0) -> list[TopicView]:
        """All topics the cluster tells of, by name, but for the brokers' own unless they are asked for (`internal`);
        `admin.list_topics` tells of them page by page."""
        return self._do(self._engine.list_topics(internal=internal, timeout_s=self._span_s(timeout)))

    def describe_topic(self, name: str, *, auto_create: bool = False, timeout: Time = 30.0) -> TopicView:
        """One topic; UNKNOWN_TOPIC_OR_PARTITION when it is not there. With `auto_create` it is made then, as for
        producers, where the broker does that.
        """
        timeout_s = self._span_s(timeout)
        return self._do(self._engine.describe_topic(name, auto_create=auto_create, timeout_s=timeout_s))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        timeout: Time = 30.0,
    ) -> UUID:
        """Create a topic, and give its id. -1 leaves a number to the broker.

        TOPIC_ALREADY_EXISTS when it is there; with `exist_ok` it is left as it is then, and its id given.
        """
        check_number("partitions", partitions, -1, INT32_MAX, ErrorCode.INVALID_PARTITIONS)
        check_number("replication_factor", replication_factor, -1, INT16_MAX, ErrorCode.INVALID_REPLICATION_FACTOR)
        timeout_s = self._span_s(timeout)
        try:
            return self._do(
                self._engine.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    settings=settings,
                    timeout_s=timeout_s,
                )
            )
        except MillstreamError as error:
            if not exist_ok or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return (self._do(self._engine.describe_topic(name, timeout_s=timeout_s))).topic_id

    def delete_topic(self, name: str, *, timeout: Time = 30.0) -> None:
        """Delete a topic with all its messages; UNKNOWN_TOPIC_OR_PARTITION when it is not there."""
        self._do(self._engine.delete_topic(name, timeout_s=self._span_s(timeout)))

    # What it makes.

    def consumer(self, topics: str | Sequence[str] = (), **options: "Unpack[ConsumerOptions]") -> "Consumer":
        """Something that reads these topics, or shares them with the others of its `group`; see `Consumer`."""
        from millstream.sdk.sync.consumer import Consumer

        return Consumer(self._portal, self._context, topics, **options)

    def subscription(self, topics: str | Sequence[str], **options: "Unpack[SubscriptionOptions]") -> "Subscription":
        """Something that the brokers send the messages of these topics to; see `Subscription`."""
        from millstream.sdk.sync.subscription import Subscription

        return Subscription(self._portal, self._context, topics, **options)

    def iterators(
        self, topics: str | Sequence[str] = (), *, group: str, **options: "Unpack[IteratorOptions]"
    ) -> "Iterators":
        """Something that reads these topics as a client of the group, with iterators; see `Iterators`."""
        from millstream.sdk.sync.iterators import Iterators

        return Iterators(self._portal, self._context, topics, group, **options)

    def iterator_calls(self) -> "IteratorCalls":
        """Single calls for clients of iterators that keep no state here; see `IteratorCalls`."""
        from millstream.sdk.sync.iterator_calls import IteratorCalls

        return IteratorCalls(self._portal, self._context)

    # Offsets.

    def offsets(
        self,
        places: Mapping[TopicPartition, Time | str] | Mapping[tuple[str, int], Time | str],
        *,
        timeout: Time = 30.0,
    ) -> dict[TopicPartition, ListedOffset]:
        """Where, in each of these partitions, "beginning" or "latest" is, or the first message at or after a time.

        The offset is -1 where no message is that late.
        """
        return self._do(self._engine.offsets(by_place("places", places), timeout_s=self._span_s(timeout)))

    # Reading from places that the caller keeps.

    def read(
        self,
        topic: str,
        partition: int,
        offset: "Position",
        *,
        max_messages: int = 500,
        max_bytes: int = 1024 * 1024,
        wait: Time = 0.0,
        timeout: Time = 30.0,
    ) -> "ReadResult":
        """Messages of a partition from a place on: an offset, "beginning", "latest", or a time. Nobody keeps the place.

        With nothing there yet, and at a place that is not reached, `wait` is waited for something to come; then there
        are no messages. Many may wait at once: it costs the brokers no more than one. OFFSET_OUT_OF_RANGE for a place
        before the beginning. Failures that pass are waited out for up to `timeout` beside the wait.
        """
        from millstream.sdk.watching.read_result import WatchLimits

        where, limits = place(topic, partition), WatchLimits.checked(max_messages, max_bytes)
        wait_s, timeout_s = self._span_s(wait, "wait"), self._span_s(timeout)
        return (self._do(self._context.read({where: offset}, limits, wait_s, timeout_s)))[where]

    def read_any(
        self,
        places: "Mapping[TopicPartition, Position] | Mapping[tuple[str, int], Position]",
        *,
        max_messages: int = 500,
        max_bytes: int = 1024 * 1024,
        wait: Time = 0.0,
        timeout: Time = 30.0,
    ) -> "dict[TopicPartition, ReadResult]":
        """As `read`, for several places at once: what is there of any, or what comes first of one of them.

        Each place has its portion, most of them perhaps without messages; the limits are those of all together.
        """
        from millstream.sdk.watching.read_result import WatchLimits

        limits = WatchLimits.checked(max_messages, max_bytes)
        found = by_place("places", places)
        return self._do(self._context.read(found, limits, self._span_s(wait, "wait"), self._span_s(timeout)))

    # Writing.

    def producer(
        self,
        *,
        group: str | None = None,
        linger: Time = LINGER_S,
        batch_bytes: int = BATCH_BYTES,
        batch_count: int = BATCH_COUNT,
        compression: str = "none",
        compression_level: int | None = None,
        acks: int = ALL,
        max_bytes: int = MAX_BYTES,
        timeout: Time = TIMEOUT_S,
        room_timeout: Time = ROOM_TIMEOUT_S,
    ) -> "Producer":
        """A producer, with connections of its own that may only write, under this producer group.

        A batch is sent when it has `batch_bytes` or `batch_count` messages, when its first message has waited for
        `linger`, or when somebody waits for one of its messages. `compression` is none, gzip, snappy, lz4 or zstd.
        At most `max_bytes` are held; a put beyond that waits for up to `room_timeout`. Within `timeout` a message is
        stored, or has failed. `acks` of 1 or 0 are weaker than the default: what is lost is not sent again, and with 0
        nobody says that anything was stored.
        """
        from millstream.sdk.sync.producer import make_producer

        options = ProducerOptions(
            batch_bytes=batch_bytes,
            batch_count=batch_count,
            linger_s=self._span_s(linger, "linger"),
            compression=compression,
            level=compression_level,
            acks=acks,
            max_bytes=max_bytes,
            timeout_s=self._span_s(timeout),
            room_timeout_s=self._span_s(room_timeout, "room_timeout"),
        )
        return self._call(lambda: make_producer(self._portal, self._context, group, options))

    def numbered_writer(
        self,
        topic: str,
        name: bytes | None = None,
        epoch: int = 0,
        *,
        partitions: int | None = None,
        turn: int = 0,
        batch_bytes: int = BATCH_BYTES,
        compression: str = "none",
        compression_level: int | None = None,
        timeout: Time = TIMEOUT_S,
    ) -> "NumberedWriter":
        """Something that stores the rows of Arrow record batches once, however often it is repeated under its name, or
        as one that is not repeated, without a name; see `NumberedWriter`.

        Epochs are from 0 to 32767. Rows are spread over `partitions` partitions (all, when it is not given), from
        `turn` on where nothing else decides: both must be the same for whoever repeats it. `timeout` is how long it
        may take until another batch is stored.
        """
        from millstream.sdk.numbered.options import NumberedOptions
        from millstream.sdk.sync.numbered_writer import NumberedWriter

        options = NumberedOptions(
            name=name,
            epoch=epoch,
            partitions=partitions,
            turn=turn,
            batch_bytes=batch_bytes,
            compression=compression,
            level=compression_level,
            timeout_s=self._span_s(timeout),
        )
        return NumberedWriter(self._portal, self._context, topic, options)


@opening
def connect(
    bootstrap: str | Sequence[str],
    *,
    client_id: str = "millstream",
    timeout: Time = 10.0,
    connect_timeout: Time = 5.0,
    request_timeout: Time = 10.0,
    on_clock_drift: OnClockDrift | None = None,
    clock_drift_threshold: Time = 1.0,
    clock_drift_interval: Time = 60.0,
    metrics: Metrics | None = None,
    network: Network | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    workers: Workers | None = None,
) -> Client:
    """A client that has reached a broker of the seed list `bootstrap`: `host:port`, several divided by commas.

    The seeds are tried, one after the other, until one answers or `timeout` is over; NETWORK_EXCEPTION then, saying for
    each why. VERSION_WINDOW, naming both versions, when this SDK and the broker are too many versions apart.
    `connect_timeout` bounds one attempt to connect, `request_timeout` one answer.

    `on_clock_drift(drift, brokers)` is called, before this returns and then at every interval, when this machine's
    clock is further than the threshold from the brokers' average: how far it is ahead of that, and of each broker.

    `metrics` is told of connections, requests and batches. `network`, `clock`, `entropy` and `workers` are for
    tests.
    """
    chosen_clock = clock or SystemClock()
    times = Times(chosen_clock)
    context = ClientContext(
        parse_bootstrap(bootstrap),
        network=network or TcpNetwork(),
        clock=chosen_clock,
        entropy=entropy or SystemEntropy(),
        workers=workers,
        metrics=metrics,
        settings=ConnectionSettings(
            client_id,
            times.span_s(connect_timeout, "connect_timeout"),
            times.span_s(request_timeout, "request_timeout"),
        ),
    )
    check_callback("on_clock_drift", on_clock_drift)
    watch = None
    if on_clock_drift is not None:
        threshold_s = times.span_s(clock_drift_threshold, "clock_drift_threshold")
        interval_s = times.span_s(clock_drift_interval, "clock_drift_interval")
        watch = DriftWatch(context.cluster_queries.clock_drift, on_clock_drift, threshold_s, interval_s)
    client = Client(Portal(), context)
    try:
        client._do(context.open(times.span_s(timeout), watch))
    except BaseException:
        client.close()
        raise
    return client
