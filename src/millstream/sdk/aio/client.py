"""The client describes and changes the cluster, and creates producers and consumers.

It reads messages itself only in `read` and `read_any`, and writes none.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast, overload
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.setting_values import SettingValue
from millstream.sdk.admin.service_map import BackupMap, ServiceMap
from millstream.sdk.aio.admin import AsyncAdmin
from millstream.sdk.aio.facade import AsyncPortal, opening
from millstream.sdk.aio.groups import AsyncGroups
from millstream.sdk.aio.reader_factory import AsyncReaderFactory, call_options
from millstream.sdk.arguments import (
    INT16_MAX,
    INT32_MAX,
    Size,
    as_size,
    by_place,
    check_callback,
    check_number,
    names_or_all,
    place,
)
from millstream.sdk.client_context import ClientContext
from millstream.sdk.cluster_queries import DriftInfo
from millstream.sdk.connection.address import find_seeds
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
    engine_options,
)
from millstream.sdk.responses import ClusterView, ListedOffset, TopicView
from millstream.sdk.time_arguments import Moment, Time, Times
from millstream.sdk.value_formats import Encode, EncodedValues, PlainValue, V
from millstream.seams.clock import Clock, SystemClock
from millstream.seams.entropy import Entropy, SystemEntropy
from millstream.seams.network import Network, TcpNetwork
from millstream.seams.workers import Workers

if TYPE_CHECKING:  # Imported on first use: a program that only writes should not wait for the readers' imports.
    from millstream.sdk.aio.numbered_writer import AsyncNumberedWriter
    from millstream.sdk.aio.producer import AsyncProducer
    from millstream.sdk.producing.options import ProducerBaseOptions
    from millstream.sdk.watching.read_positions import Position
    from millstream.sdk.watching.read_result import ReadResult


class AsyncClient(AsyncReaderFactory):
    """Connects to one cluster. Create it with `millstream.connect_async`; use `async with` or call `close()`.

    All tasks of one event loop may share an asyncio client; all threads may share a blocking client. Closing the client
    closes the producers and consumers it created. Producers send their buffered messages first.
    """

    def __init__(self, portal: AsyncPortal, context: ClientContext) -> None:
        super().__init__(portal, context, context.lifecycle)
        portal.at_end(context.lifecycle.close)
        self._engine = context.cluster_queries
        self.admin = AsyncAdmin(portal, context)
        """Administration: settings, partitions, sizes, the cluster and catalog queries."""
        self.groups = AsyncGroups(portal, context)
        """Administration of groups: members, committed offsets, deletion."""

    async def close(self) -> None:
        """Close everything this client created, then its own connections. A second call does nothing."""
        try:
            await super().close()
        finally:
            await self._portal.close()

    # About the cluster.

    async def metadata(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> ClusterView:
        """Return brokers, controller and these topics, or all. A topic that cannot be described has an error number."""
        return await self._do(self._engine.metadata(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    async def info(self, *, node_id: int | None = None, timeout: Time = 30.0) -> DriftInfo:
        """Return version, features and clock of the broker `node_id`, or of any broker.

        Raises UNSUPPORTED_VERSION if the broker is not a Millstream broker.
        """
        if node_id is not None:
            check_number("node_id", node_id, least=0, most=INT32_MAX)
        return await self._do(self._engine.info(node_id=node_id, timeout_s=self._span_s(timeout)))

    async def clock_drift(self, *, timeout: Time = 30.0) -> ClockDrift:
        """Return how far this machine's clock is ahead of the brokers' average and of each broker.

        Negative values mean behind. Raises UNSUPPORTED_VERSION if no broker reports its time; Kafka's brokers do not.
        """
        return await self._do(self._engine.clock_drift(timeout_s=self._span_s(timeout)))

    async def service_map(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> ServiceMap:
        """Return which service runs where, and the leaders of the partitions of these topics.

        None means all topics; an empty list means no topics. Raises UNSUPPORTED_VERSION if the broker is not a
        Millstream broker.
        """
        return await self._do(self._engine.service_map(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    async def backup_map(self, topics: str | Sequence[str] | None = None, *, timeout: Time = 30.0) -> BackupMap:
        """Return the followers of each partition of these topics, or of all topics, and how far each has copied.

        Raises UNSUPPORTED_VERSION if the broker is not a Millstream broker.
        """
        return await self._do(self._engine.backup_map(names_or_all("topics", topics), timeout_s=self._span_s(timeout)))

    # Topics.

    async def list_topics(self, *, internal: bool = False, timeout: Time = 30.0) -> list[TopicView]:
        """Return all topics, sorted by name; internal ones only with `internal`. See `admin.list_topics` for paging."""
        return await self._do(self._engine.list_topics(internal=internal, timeout_s=self._span_s(timeout)))

    async def describe_topic(self, name: str, *, auto_create: bool = False, timeout: Time = 30.0) -> TopicView:
        """Return the description of one topic; raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist.

        With `auto_create` the broker creates a missing topic first, if its settings allow that.
        """
        timeout_s = self._span_s(timeout)
        return await self._do(self._engine.describe_topic(name, auto_create=auto_create, timeout_s=timeout_s))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        settings: Mapping[str, SettingValue] | None = None,
        exist_ok: bool = False,
        timeout: Time = 30.0,
    ) -> UUID:
        """Create a topic and return its id. -1 uses the broker's default for that number.

        `settings` are topic settings by name, with text, numbers or booleans as values. Durations and sizes may have
        units: `{"retention.ms": "7d", "segment.bytes": "64MiB"}`. Raises INVALID_CONFIG, which names the setting, for
        an invalid setting.

        Raises TOPIC_ALREADY_EXISTS if the topic exists. With `exist_ok` the existing topic is left unchanged and its
        id is returned.
        """
        check_number("partitions", partitions, least=-1, most=INT32_MAX, code=ErrorCode.INVALID_PARTITIONS)
        check_number(
            "replication_factor",
            replication_factor,
            least=-1,
            most=INT16_MAX,
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
        timeout_s = self._span_s(timeout)
        try:
            return await self._do(
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
            return (await self._do(self._engine.describe_topic(name, timeout_s=timeout_s))).topic_id

    async def delete_topic(self, name: str, *, timeout: Time = 30.0) -> None:
        """Delete a topic with all its messages; raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        await self._do(self._engine.delete_topic(name, timeout_s=self._span_s(timeout)))

    # Offsets.

    async def offsets(
        self,
        positions: Mapping[TopicPartition, Moment | str] | Mapping[tuple[str, int], Moment | str],
        *,
        timeout: Time = 30.0,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return for each partition the offset of "beginning", of "latest", or of the first message at or after a time.

        A time is a datetime, a timedelta or a text such as "10m" (both: this long ago), or seconds since 1970.
        The offset is -1 if the partition has no message at or after that time.
        """
        return await self._do(self._engine.offsets(by_place("positions", positions), timeout_s=self._span_s(timeout)))

    # Reading from an offset that the caller stores.

    async def read(
        self,
        topic: str,
        partition: int,
        offset: "Position",
        *,
        max_messages: int = 500,
        max_bytes: Size = 1024 * 1024,
        on_bad_batch: str = "raise",
        wait: Time = 0.0,
        timeout: Time = 30.0,
    ) -> "ReadResult":
        """Read messages of a partition from `offset` on: an offset, "beginning", "latest" or a time.

        The client and the broker store no position; the caller continues at `next_offset` of the result. If there is
        no message at that offset yet, the call waits for up to `wait` and then returns no messages. All waiting reads
        of a partition share one subscription at the broker, so thousands may wait. Raises OFFSET_OUT_OF_RANGE if the
        offset is before the first message. Transient failures are retried for up to `timeout` in addition to `wait`.
        A stored batch that cannot be decoded ends the result; if it is the first, it raises UnreadableError, or is
        skipped with `on_bad_batch="skip"`.
        """
        from millstream.sdk.consuming.start_positions import check_single_offset
        from millstream.sdk.watching.read_result import WatchLimits

        where = place(topic, partition)
        limits = WatchLimits.checked(messages=max_messages, size_bytes=max_bytes, on_bad_batch=on_bad_batch)
        if isinstance(offset, int):
            check_single_offset(offset, "offset")
        wait_s, timeout_s = self._span_s(wait, "wait"), self._span_s(timeout)
        return (await self._do(self._context.read({where: offset}, limits, wait_s, timeout_s)))[where]

    async def read_any(
        self,
        positions: "Mapping[TopicPartition, Position] | Mapping[tuple[str, int], Position]",
        *,
        max_messages: int = 500,
        max_bytes: Size = 1024 * 1024,
        on_bad_batch: str = "raise",
        wait: Time = 0.0,
        timeout: Time = 30.0,
    ) -> "dict[TopicPartition, ReadResult]":
        """Read several partitions at once, each from its own position; see `read`.

        The call returns as soon as one partition has messages. The result has an entry for every partition, perhaps
        without messages. `max_messages` and `max_bytes` limit all partitions together.
        """
        from millstream.sdk.watching.read_result import WatchLimits

        limits = WatchLimits.checked(messages=max_messages, size_bytes=max_bytes, on_bad_batch=on_bad_batch)
        found = by_place("positions", positions)
        return await self._do(self._context.read(found, limits, self._span_s(wait, "wait"), self._span_s(timeout)))

    # Writing.

    @overload
    def producer(
        self, *, values: None = None, **options: "Unpack[ProducerBaseOptions]"
    ) -> "AsyncProducer[PlainValue]": ...
    @overload
    def producer(self, *, values: type[V], **options: "Unpack[ProducerBaseOptions]") -> "AsyncProducer[V]": ...
    @overload
    def producer(self, *, values: Encode[V], **options: "Unpack[ProducerBaseOptions]") -> "AsyncProducer[V]": ...
    @overload
    def producer(self, *, values: EncodedValues, **options: "Unpack[ProducerBaseOptions]") -> "AsyncProducer[Any]": ...
    def producer(
        self,
        *,
        group: str | None = None,
        values: EncodedValues = None,
        linger: Time = LINGER_S,
        batch_bytes: Size = BATCH_BYTES,
        batch_count: int = BATCH_COUNT,
        compression: str = "none",
        compression_level: int | None = None,
        acks: int = ALL,
        max_bytes: Size = MAX_BYTES,
        timeout: Time = TIMEOUT_S,
        room_timeout: Time = ROOM_TIMEOUT_S,
    ) -> "AsyncProducer[Any]":
        """Create a producer with its own connections, which can only write; `group` names its producer group.

        - `values`: the format in which values are encoded: None (bytes or text), `str`, "json", a msgspec type, a
          pydantic model, or a function that returns bytes. Consumers decode the same formats.
        - `batch_bytes`, `batch_count`, `linger`: a batch is sent when it has reached this size or this number of
          messages, when its first message has waited for `linger`, or when a caller waits for one of its messages.
        - `compression`: "none", "gzip", "snappy", "lz4" or "zstd", with an optional `compression_level`.
        - `max_bytes`: limit of the buffer. A put beyond it waits for up to `room_timeout`.
        - `timeout`: delivery timeout. Each message is stored or has failed by then.
        - `acks`: -1 (default) retries and stores each message once. 1 and 0 do not retry after a lost answer, and
          with 0 the broker sends no acknowledgement.
        """
        options = engine_options(self._context.times, cast("ProducerBaseOptions", call_options(locals())))
        from millstream.sdk.aio.producer import make_producer

        return self._call(lambda: make_producer(self._portal, self._context, group, options, values))

    def numbered_writer(
        self,
        topic: str,
        name: bytes | None = None,
        epoch: int = 0,
        *,
        partitions: int | None = None,
        turn: int = 0,
        batch_bytes: Size = BATCH_BYTES,
        compression: str = "none",
        compression_level: int | None = None,
        timeout: Time = TIMEOUT_S,
    ) -> "AsyncNumberedWriter":
        """Create a writer that stores Arrow rows effectively once: a repeated job adds only the missing rows.

        - `name`: identifies the job. A repetition under the same name and epoch stores only the missing rows. None:
          the job cannot be repeated.
        - `epoch`: 0 to 32767. A higher epoch starts again at row 0 and fences writers of lower epochs.
        - `partitions`: rows are distributed over this many partitions (default: all of the topic).
        - `turn`: rows without key and partition go to one partition after the other, in blocks of 65,536 rows. `turn`
          is the partition of the first block. A repetition must use the same `partitions` and `turn`.
        - `timeout`: the longest time without progress, that is, until another batch is stored.

        See `AsyncNumberedWriter`.
        """
        from millstream.sdk.aio.numbered_writer import AsyncNumberedWriter
        from millstream.sdk.numbered.options import NumberedOptions

        options = NumberedOptions(
            name=name,
            epoch=epoch,
            partitions=partitions,
            turn=turn,
            batch_bytes=as_size("batch_bytes", batch_bytes),
            compression=compression,
            level=compression_level,
            timeout_s=self._span_s(timeout),
        )
        return AsyncNumberedWriter(self._portal, self._context, topic, options)


@opening
async def connect_async(
    bootstrap: str | Sequence[str] | None = None,
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
) -> AsyncClient:
    """Connect to a cluster and return its client. `bootstrap` lists brokers: "host:port", separated by commas.

    Without `bootstrap` the client uses the environment variable MILLSTREAM_BOOTSTRAP, or else the context that
    MILLSTREAM_CONTEXT names, or else the current context of the command line (`millstream context use`), or else
    127.0.0.1:9092. Errors then name the source of the address.

    The brokers are tried in order until one answers. Raises NETWORK_EXCEPTION with the reason for each broker if none
    has answered within `timeout`. Raises VERSION_WINDOW with both versions if SDK and broker are more than two minor
    versions apart. `connect_timeout` limits one connection attempt; `request_timeout` limits one request.

    `on_clock_drift(drift, brokers)` is called when this machine's clock differs from the brokers' average by more than
    `clock_drift_threshold`. The clocks are compared before this call returns, and then every `clock_drift_interval`.
    `drift` is how far this machine's clock is ahead of the average; `brokers` has the same for each broker.

    `metrics` receives counters and durations of connections, requests and batches; see `Metrics`. `network`, `clock`,
    `entropy` and `workers` are for tests.
    """
    chosen_clock = clock or SystemClock()
    times = Times(chosen_clock)
    seeds, origin = find_seeds(bootstrap)
    connect_s = times.span_s(connect_timeout, "connect_timeout")
    request_s = times.span_s(request_timeout, "request_timeout")
    context = ClientContext(
        seeds,
        network=network or TcpNetwork(),
        clock=chosen_clock,
        entropy=entropy or SystemEntropy(),
        workers=workers,
        metrics=metrics,
        settings=ConnectionSettings(client_id, connect_s, request_s, origin),
    )
    watch = _drift_watch(context, on_clock_drift, clock_drift_threshold, clock_drift_interval)
    client = AsyncClient(AsyncPortal(), context)
    try:
        await client._do(context.open(times.span_s(timeout), watch))
    except BaseException:
        await client.close()
        raise
    return client


def _drift_watch(
    context: ClientContext, on_clock_drift: OnClockDrift | None, threshold: Time, interval: Time
) -> DriftWatch | None:
    check_callback("on_clock_drift", on_clock_drift)
    if on_clock_drift is None:
        return None
    threshold_s = context.times.span_s(threshold, "clock_drift_threshold")
    interval_s = context.times.span_s(interval, "clock_drift_interval")
    return DriftWatch(context.cluster_queries.clock_drift, on_clock_drift, threshold_s, interval_s)
