"""The producer: puts messages in the background, and tells what became of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncFacade, AsyncPortal
from millstream.sdk.arguments import INT64_MAX, check_callback, check_number
from millstream.sdk.client_context import ClientContext
from millstream.sdk.lifecycle import Lifecycle
from millstream.sdk.producing.bulk import Receipts
from millstream.sdk.producing.chunk import Receipt
from millstream.sdk.producing.engine import ProducerEngine
from millstream.sdk.producing.message_ids import Id, as_column, taken_id, taken_ids
from millstream.sdk.producing.options import ProducerOptions
from millstream.sdk.time_arguments import Time

Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]


class AsyncProducer(AsyncFacade):
    """Made by `client.producer`. Use `async with`, or `close()` it: both send what is left.

    Messages are gathered in batches and sent in the background; one thread's messages to one partition keep their
    order. Any thread may put, and ask a receipt.
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        lifecycle: Lifecycle,
        engine: ProducerEngine,
        group: str | None,
    ) -> None:
        super().__init__(portal, context, lifecycle)
        self._engine = engine
        self._put = engine.intake.put
        self.group = group
        """The producer group that its connections have declared, or None."""

    def __repr__(self) -> str:
        group = "" if self.group is None else f" in group {self.group!r}"
        state = "closed" if self.closed else f"{self.held_bytes} bytes on their way"
        return f"<AsyncProducer of {self._context}{group}: {state}>"

    def put(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        partition: int | None = None,
        hash: int | None = None,
        message_id: Id | None = None,
        on_done: Callable[[Receipt], object] | None = None,
    ) -> Receipt:
        """Send a message in the background; the receipt says what became of it, to whoever asks or to `on_done`.

        Text is sent as UTF-8; without a `timestamp` it is the time of this call. The partition is the one given; or the
        `hash` decides, by its remainder; or the key, as for clients in Java; or the message id; and messages without
        any of these go, batch by batch, to one partition after the other. With the `message_id` of an earlier receipt,
        or one of your own, a message that is there already is not stored again: its first place is the answer.

        PRODUCER_FULL while as much is held as may be: at once on the producer's own event loop, where `room()` can be
        awaited, and in other threads when waiting for room took too long. MESSAGE_TOO_LARGE, at once, for a message
        that is larger than all that may be held.
        """
        if self._lifecycle.over is not None:
            raise self._lifecycle.refusal()
        if timestamp is not None or message_id is not None or hash is not None:
            if hash is not None and partition is not None:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "give a partition or a hash, not both")
            time_ms = None if timestamp is None else self._context.times.moment_ms(timestamp, "timestamp")
            own_id = None
            if message_id is not None:
                self._check_ids()
                own_id, partition = taken_id(message_id, partition)
            return self._put(topic, value, key, headers, time_ms, partition, hash, own_id, on_done)
        return self._put(topic, value, key, headers, None, partition, None, None, on_done)

    def put_many(
        self,
        topic: str,
        values: Any,
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps: Sequence[Time] | Time | None = None,
        partition: Sequence[int | None] | int | None = None,
        hashes: Sequence[int | None] | None = None,
        message_ids: Sequence[Id | None] | None = None,
        on_done: Callable[[Receipts], object] | None = None,
    ) -> Receipts:
        """Send many messages, with one receipt for all of them; the columns are as long as `values`, or not there.

        `values` may be an Arrow table or record batch instead, with a column `value` and, if need be, `key`, `headers`
        and `timestamp`: its rows are sent without being made Python objects. `on_done` is called once, for all.
        More than may be held is taken when nothing else is held.
        """
        if self._lifecycle.over is not None:
            raise self._lifecycle.refusal()
        check_callback("on_done", on_done)
        times = self._context.times
        if timestamps is None:
            times_ms: list[int] | int = self._context.clock.wall_ms()
        elif isinstance(timestamps, Sequence):
            times_ms = [times.moment_ms(each, "timestamps") for each in as_column(timestamps, "timestamps")]
        else:
            times_ms = times.moment_ms(timestamps, "timestamps")
        ids = None
        if message_ids is not None:
            self._check_ids()
            ids, partition = taken_ids(message_ids, partition)
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
        """What it holds of messages that are on their way, as it counts them against `max_bytes`."""
        held_bytes: int = self._engine.intake.held_bytes
        return held_bytes

    @property
    def max_bytes(self) -> int:
        """How much it may hold."""
        return self._engine.options.max_bytes

    async def room(self, size_bytes: int = 0) -> None:
        """Wait until at most half of what may be held is, or less if `size_bytes` more would not fit."""
        check_number("size_bytes", size_bytes, 0, INT64_MAX)
        await self._do(self._engine.room(size_bytes))

    async def flush(self, timeout: Time | None = None) -> None:
        """Wait until everything put before is stored or has failed; TimeoutError when that takes longer.

        UnstoredError when messages failed whose receipts, and callbacks, nobody has asked yet.
        """
        await self._do(self._engine.flush(self._limit_s(timeout)))

    async def close(self, timeout: Time | None = None) -> None:
        """Send what is left, then end; what is not answered for in time is given up.

        UnstoredError, saying how many messages are known not to be stored and how many are in doubt, for those whose
        receipts nobody has asked yet.
        """
        self._engine.close_timeout_s = self._limit_s(timeout)
        await super().close()

    def _check_ids(self) -> None:
        if self._engine.options.acks == 0:
            text = "message ids need an answer, and acks=0 wants none"
            raise MillstreamError(ErrorCode.INVALID_REQUIRED_ACKS, text)

    def _limit_s(self, timeout: Time | None) -> float:
        return self._engine.settled_within_s if timeout is None else self._span_s(timeout)


def make_producer(
    portal: AsyncPortal, context: ClientContext, group: str | None, options: ProducerOptions
) -> AsyncProducer:
    """A producer with connections of its own; on the client's event loop."""
    context.lifecycle.check()
    asking = context.asking(Role.PRODUCER, group)
    engine = ProducerEngine(asking, context.clock, options)
    return AsyncProducer(portal, context, context.adopt("producer", asking, engine.close), engine, group)
