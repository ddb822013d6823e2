"""The producer sends messages in the background and reports the outcome of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncFacade, AsyncPortal
from millstream.sdk.arguments import Size, as_size, check_callback
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.lifecycle import Lifecycle
from millstream.sdk.producing.bulk import Receipts, is_table
from millstream.sdk.producing.chunk import Receipt
from millstream.sdk.producing.encoding import value_encoder
from millstream.sdk.producing.engine import ProducerEngine
from millstream.sdk.producing.message_ids import Id, as_column, checked_id, checked_ids
from millstream.sdk.producing.options import ProducerSettings
from millstream.sdk.producing.put_arguments import TOMBSTONE_WITHOUT_KEY
from millstream.sdk.time_arguments import Moment, Time
from millstream.sdk.value_formats import EncodedValues, PlainValue, V_contra

Data = PlainValue | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


class AsyncProducer(AsyncFacade, Generic[V_contra]):
    """Writes messages. Create it with `client.producer`; use `async with` or call `close()`, which flush the buffer.

    Messages are collected into batches and sent in the background. Messages that one thread puts to one partition keep
    their order. Every thread may put messages and use receipts.

    The type parameter is the type of the values: bytes or text by default, `AsyncProducer[Order]` with `values=Order`.
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        lifecycle: Lifecycle,
        engine: ProducerEngine,
        group: str | None,
        values: EncodedValues = None,
    ) -> None:
        super().__init__(portal, context, lifecycle)
        self._engine = engine
        self._encoder = value_encoder(values)
        self._put = engine.intake.put if self._encoder is None else self._encoder.before(engine.intake.put)
        self.group = group
        """The producer group that its connections declare, or None."""

    def __repr__(self) -> str:
        group = "" if self.group is None else f" in group {self.group!r}"
        state = "closed" if self.closed else f"{self.held_bytes} bytes buffered"
        return f"<AsyncProducer of {self._context}{group}: {state}>"

    def put(
        self,
        topic: str,
        value: V_contra | None,
        key: Data = None,
        *,
        headers: Headers | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
        hash: int | None = None,
        message_id: Id | None = None,
        on_done: Callable[[Receipt], object] | None = None,
    ) -> Receipt:
        """Send a message in the background and return its receipt, which waits for the outcome.

        - `value`, `key` and header values are bytes or text; text is sent as UTF-8. A producer with a value format
          encodes `value` and raises UnencodableError, a ValueError, if that fails.
        - `value=None` writes a tombstone: in a compacted topic it deletes the earlier messages with its key. Raises
          INVALID_REQUEST without a key. `put_many`, which may copy messages, accepts null values without keys.
        - `timestamp`: default is the time of this call.
        - The partition is `partition`; otherwise `hash` modulo the number of partitions; otherwise the hash of the key,
          as in Kafka's Java client; otherwise the hash of the message id. Messages without any of these go to one
          partition after the other, batch by batch.
        - `message_id`: the id of an earlier receipt, or your own. A message that is already stored under this id is not
          stored again; the result has the offset of the first copy.
        - `on_done`: called with the receipt when the outcome is known. It runs on the event loop and must not block.

        Raises PRODUCER_FULL while the buffer is full: immediately on the producer's event loop, and after
        `room_timeout` in other threads; see `room`. Raises MESSAGE_TOO_LARGE for a message that is larger than the
        whole buffer.
        """
        if self._lifecycle.over is not None:
            raise self._lifecycle.refusal()
        if value is None and key is None:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, TOMBSTONE_WITHOUT_KEY)
        if timestamp is not None or message_id is not None or hash is not None:
            if hash is not None and partition is not None:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "give a partition or a hash, not both")
            time_ms = None if timestamp is None else self._context.times.moment_ms(timestamp, "timestamp")
            own_id = None
            if message_id is not None:
                self._check_ids()
                own_id, partition = checked_id(message_id, partition)
            return self._put(topic, value, key, headers, time_ms, partition, hash, own_id, on_done)
        return self._put(topic, value, key, headers, None, partition, None, None, on_done)

    def put_many(
        self,
        topic: str,
        values: Any,
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps: Sequence[Moment] | Moment | None = None,
        partition: Sequence[int | None] | int | None = None,
        hashes: Sequence[int | None] | None = None,
        message_ids: Sequence[Id | None] | None = None,
        on_done: Callable[[Receipts], object] | None = None,
    ) -> Receipts:
        """Send many messages in the background and return one receipt for all of them.

        The other columns are as long as `values`, or left out. `values` may instead be an Arrow table or record batch
        with a column `value` and optionally `key`, `headers` and `timestamp`; its rows do not become Python objects,
        and the producer's value format is not applied to them.
        `on_done` is called once, when all outcomes are known. Data larger than the whole buffer is accepted once the
        buffer is empty. Raises the errors of `put`.
        """
        if self._lifecycle.over is not None:
            raise self._lifecycle.refusal()
        check_callback("on_done", on_done)
        times_ms = self._times_ms(timestamps)
        if self._encoder is not None and not is_table(values):
            values = self._encoder.column(topic, values, keys)
        ids = None
        if message_ids is not None:
            self._check_ids()
            ids, partition = checked_ids(message_ids, partition)
        receipts = self._engine.put_many(
            topic,
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=times_ms,
            partition=partition,
            hashes=hashes,
            ids=ids,
        )
        if on_done is not None:
            receipts.add_done_callback(on_done)
        return receipts

    @property
    def held_bytes(self) -> int:
        """Bytes of the messages that are buffered or in flight, as they count against `max_bytes`."""
        held_bytes: int = self._engine.intake.held_bytes
        return held_bytes

    @property
    def max_bytes(self) -> int:
        """Limit of the buffer in bytes."""
        return self._engine.options.max_bytes

    def health(self) -> ConnectionHealth:
        """Return whether the brokers are reachable, since when, the reason if not, and the bytes held."""
        return self._call(lambda: self._engine.health())

    async def room(self, size_bytes: Size = 0) -> None:
        """Wait until at least half of the buffer is free, or more if `size_bytes` needs more."""
        await self._do(self._engine.room(as_size("size_bytes", size_bytes, least=0)))

    async def flush(self, timeout: Time | None = None) -> None:
        """Wait until every message put before is stored or has failed; raises TimeoutError after `timeout`.

        Raises UnstoredError if messages failed whose receipts were not read and have no callback.
        """
        await self._do(self._engine.flush(self._limit_s(timeout)))

    async def close(self, timeout: Time | None = None) -> None:
        """Send the buffered messages and close. Messages without an answer after `timeout` are given up.

        Raises UnstoredError if messages failed whose receipts were not read. It has the number of messages that are not
        stored and the number whose outcome is unknown.
        """
        self._engine.close_timeout_s = self._limit_s(timeout)
        await super().close()

    def _check_ids(self) -> None:
        if self._engine.options.acks == 0:
            text = "message_id needs acknowledgements from the broker; acks=0 has none (use acks=-1 or acks=1)"
            raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, text)

    def _times_ms(self, timestamps: Sequence[Moment] | Moment | None) -> list[int] | int:
        if timestamps is None:
            return self._context.clock.wall_ms()
        times = self._context.times
        if isinstance(timestamps, Sequence):
            return [times.moment_ms(each, "timestamps") for each in as_column(timestamps, "timestamps")]
        return times.moment_ms(timestamps, "timestamps")

    def _limit_s(self, timeout: Time | None) -> float:
        return self._engine.settled_within_s if timeout is None else self._span_s(timeout)


def make_producer(
    portal: AsyncPortal,
    context: ClientContext,
    group: str | None,
    options: ProducerSettings,
    values: EncodedValues = None,
) -> AsyncProducer[Any]:
    """Create a producer with its own connections. Must run on the client's event loop."""
    context.lifecycle.check()
    caller = context.new_caller(Role.PRODUCER, group)
    engine = ProducerEngine(caller, context.clock, options)
    return AsyncProducer(portal, context, context.adopt("producer", caller, engine.close), engine, group, values)
