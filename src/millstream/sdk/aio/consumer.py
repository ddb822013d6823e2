"""The consumer reads topics alone or as a member of a group."""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.records.message import Message
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.reader import AsyncReader
from millstream.sdk.arguments import (
    INT32_MAX,
    INT64_MAX,
    TEXT_MAX,
    Size,
    as_places,
    as_size,
    check_callback,
    check_number,
    check_text,
    named_topics,
    offsets_by_place,
    place,
)
from millstream.sdk.client_context import ClientContext
from millstream.sdk.consuming.bad_values import RAISE, bad_value_decoder
from millstream.sdk.consuming.callbacks import bounded, report
from millstream.sdk.consuming.decoding import decoder
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.engine import ConsumerEngine, PollOutcome
from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.consuming.options import ConsumerOptions, engine_settings
from millstream.sdk.consuming.partition_source import Change, ChangeKind
from millstream.sdk.consuming.read_at import get_messages
from millstream.sdk.consuming.start_positions import StartPosition, StartPositions
from millstream.sdk.feed.undecodable_batches import skips_bad_batches
from millstream.sdk.fetching import MAX_BYTES
from millstream.sdk.time_arguments import Time
from millstream.sdk.value_formats import V_co

if TYPE_CHECKING:
    import pyarrow as pa

POLL_MESSAGES = 10_000

R = TypeVar("R")


class AsyncConsumer(AsyncReader, Generic[V_co]):
    """Reads topics. Create it with `client.consumer`; use `async with`, iterate over it, or call `close()`.

        async with client.consumer("orders", start="beginning") as consumer:
            async for message in consumer:
                ...

    Messages of one partition arrive in offset order, each once. There is no order across partitions. Delivered messages
    count as finished when the caller requests more; a consumer in a group then commits them. Only one task or thread
    may use a consumer at a time.

    The type parameter is the type of the values: `AsyncConsumer[bytes]` by default, `AsyncConsumer[Order]` with
    `values=Order`.
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        topics: str | Sequence[str],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.topics = named_topics(topics)
        """The topics that it reads; empty with a pattern."""
        self.pattern = options.get("pattern")
        """The regular expression of the topics that it reads, or None."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            check_callback(name, options.get(name), is_awaited=True)
        check_callback("on_health", options.get("on_health"))
        self.group = options.get("group")
        """The group that it belongs to; None for a consumer that tracks its own position."""
        self._callbacks = {
            ChangeKind.ASSIGNED: options.get("on_assigned"),
            ChangeKind.REVOKED: options.get("on_revoked"),
            ChangeKind.LOST: options.get("on_lost"),
        }
        self._on_health = options.get("on_health")
        decode = bad_value_decoder(
            decoder(options.get("values")), options.get("on_bad_value", RAISE), context.clock.monotonic_s
        )
        skips = skips_bad_batches(options.get("on_bad_batch", RAISE))
        self._buffer = DeliveredBuffer(decode, reads=portal.callers_wait, skips=skips)
        self._has_end = options.get("stop") is not None
        settings = engine_settings(context.times, self.topics, options)
        self._callback_timeout_s = settings.callback_timeout_s
        caller = context.new_caller(Role.CONSUMER)
        notice = None if self._on_health is None else self._report_health
        context.lifecycle.check()
        self._engine = portal.call(partial(ConsumerEngine, caller, self._buffer, settings, notice))
        lifecycle = context.adopt(
            "consumer", caller, lambda: self._engine.close(finish=self._is_done), self._buffer.drop
        )
        super().__init__(portal, context, lifecycle)
        self._caller = caller

    def __repr__(self) -> str:
        group = "" if self.group is None else f" in group {self.group!r}"
        topics = ", ".join(self.topics) if self.pattern is None else f"topics like {self.pattern!r}"
        return f"<AsyncConsumer of {topics}{group}, {self._engine.doing.value}>"

    async def start(self) -> None:
        """Join the group, or look up the start positions.

        `async with` calls it. Without `async with` the first read does.
        """
        await self._do(self._engine.start())

    # Reading.

    async def poll(self, timeout: Time | None = 5.0, max_messages: int = POLL_MESSAGES) -> "list[Message[V_co]]":
        """Return the buffered messages, at most `max_messages`; waits for the first one for up to `timeout`.

        The list is empty if no message arrived in time, or if the position `stop` is reached. `timeout=None` waits
        without a limit. Transient failures are retried. Permanent failures are raised: a refused group or topic,
        damaged messages, a value that cannot be decoded (UNDECODABLE_VALUE; the next call continues after it). A batch
        that cannot be decoded raises UnreadableError (UNDECODABLE_BATCH) in every call until `seek` passes it or the
        partition is paused; messages before it are returned first. Without a group, a deleted topic raises
        UNKNOWN_TOPIC_OR_PARTITION in every call that has no messages to return, until its partitions are paused.
        """
        check_number("max_messages", max_messages, least=1, most=INT64_MAX)
        return await self._taken(timeout, partial(self._buffer.some, max_messages)) or []

    def __aiter__(self) -> "AsyncIterator[Message[V_co]]":
        """Iterate over single messages; ends at `stop`."""
        return self._each()

    async def _each(self) -> "AsyncIterator[Message[V_co]]":
        while await self._fill_buffer(None) is not PollOutcome.OVER:
            left, decode = self._buffer.each()
            try:
                while True:
                    message = left[0] if decode is None else decode(left)
                    del left[0]  # Not `popleft()`: a signal handler may raise after a call, before the message is out.
                    yield message
            except IndexError:
                pass  # The buffer is empty.

    async def batches(self) -> AsyncIterator[MessageBatch[V_co]]:
        """Iterate over batches, each with messages of one partition; ends at `stop`."""
        while await self._fill_buffer(None) is not PollOutcome.OVER:
            batch = self._taking(self._batch)
            if batch is not None:
                yield batch

    async def poll_batch(self, timeout: Time | None = 5.0) -> MessageBatch[V_co] | None:
        """Return the next messages of one partition; None if no message arrived in time, or if `stop` is reached."""
        return await self._taken(timeout, self._batch)

    def _batch(self) -> MessageBatch[V_co] | None:
        messages = self._buffer.one()
        if not messages:
            return None
        where = TopicPartition(*messages[0][:2])
        return MessageBatch(*where, messages, self._buffer.positions()[where])

    async def arrow(self) -> "AsyncIterator[pa.RecordBatch]":
        """Iterate over Arrow record batches; ends at `stop`.

        The columns are topic, partition, offset, timestamp, key, value and headers. Messages do not become Python
        objects, and the option `values` is not applied. Needs PyArrow (`pip install 'millstream[arrow]'`).
        """
        while True:
            found = await self._next_arrow(None)
            if found is None:
                return
            yield found

    async def poll_arrow(self, timeout: Time | None = 5.0) -> "pa.RecordBatch | None":
        """Return the next Arrow record batch; None if no message arrived in time, or if `stop` is reached."""
        return await self._next_arrow(timeout)

    async def arrow_table(self) -> "pa.Table":
        """Return all messages up to `stop` as one Arrow table, with the columns of `arrow`. The table may be empty.

        Raises INVALID_REQUEST for a consumer without `stop`, whose table would never end.
        """
        from millstream.sdk.consuming.arrow import as_table

        if not self._has_end:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST,
                'arrow_table() needs a consumer with a stop position (example: stop="latest")',
            )
        batches = []
        async for batch in self.arrow():
            batches.append(batch)
        return as_table(batches)

    async def get(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_messages: int | None = None,
        max_bytes: Size = MAX_BYTES,
        timeout: Time = 5.0,
    ) -> "list[Message[bytes]]":
        """Return messages of a partition from `offset` on, without changing this consumer's positions.

        The values are bytes, also if the consumer decodes values.

        Reads about `max_bytes`, and at most `max_messages`. If there is no message at that offset yet, the call waits
        for up to `timeout`. Transient failures are retried until `timeout`, then raised. Raises OFFSET_OUT_OF_RANGE,
        which names the first offset of the partition, if the messages at `offset` have been removed.
        """
        where, timeout_s = place(topic, partition), self._span_s(timeout)
        check_number("offset", offset, least=0, most=INT64_MAX)
        size_bytes = as_size("max_bytes", max_bytes, most=INT32_MAX)
        return await self._do(
            get_messages(
                self._caller, where, offset, max_messages=max_messages, max_bytes=size_bytes, timeout_s=timeout_s
            )
        )

    # Positions.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads now."""
        return self._engine.assignment

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next message of this partition; None if this consumer does not read it."""
        return self._engine.position(place(topic, partition))

    async def seek(
        self, to: StartPosition, *partitions: TopicPartition | tuple[str, int], timeout: Time = 30.0
    ) -> None:
        """Continue at another position in these partitions, or in all. `to` takes the same values as `start`."""
        places = StartPositions(to, self._context.times, "to")
        await self._do(self._engine.seek(places, _named(partitions), self._span_s(timeout)))

    async def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Stop delivering messages of these partitions, or of all, until `resume`. Delivered messages stay valid."""
        await self._do(self._engine.pause(_named(partitions)))

    async def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Deliver messages of these paused partitions again, or of all."""
        await self._do(self._engine.resume(_named(partitions)))

    async def lag(self, *, timeout: Time = 30.0) -> dict[TopicPartition, int]:
        """Return for each partition the number of offsets between this consumer's position and the end."""
        return await self._do(self._engine.lag(self._span_s(timeout)))

    # Group membership.

    @property
    def member_id(self) -> str:
        """The member id in the group; raises INVALID_REQUEST without a group."""
        return self._engine.membership.core.member_id

    async def commit(
        self,
        what: "Message | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None" = None,
        *,
        metadata: str = "",
        timeout: Time = 10.0,
    ) -> None:
        """Commit offsets of the group and wait until they are durable.

        `what` is a message (commits all messages of its partition up to it), a dict of offsets to continue at, or None
        (commits all delivered messages). `metadata` is an arbitrary text stored with the offsets. Raises
        FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID if the partitions have been assigned to another member, which then
        receives the uncommitted messages again.
        """
        self._buffer.note_turn()
        if isinstance(what, Message):
            what = {TopicPartition(what.topic, what.partition): what.offset + 1}
        offsets = None if what is None else offsets_by_place("what", what)
        check_text("metadata", metadata, least=0, most=TEXT_MAX)
        await self._do(self._engine.commit(offsets, metadata, self._span_s(timeout)))

    def alive(self) -> None:
        """Restart `handler_timeout`. Call it during long work on a message, to stay in the group."""
        self._buffer.note_turn()

    def health(self) -> Health:
        """Return the consumer's current activity, its duration, and the reason for waiting."""
        return self._call(self._engine.health)

    # Implementation.

    async def _taken(self, timeout: Time | None, take: Callable[[], R]) -> R | None:
        """Wait for messages and return those that `take` takes, or None. Continues after it skipped all of them."""
        clock = self._context.clock
        timeout_s = None if timeout is None else self._span_s(timeout)
        end_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
        while await self._fill_buffer(timeout_s) is PollOutcome.HERE:
            taken = self._taking(take)
            if taken:
                return taken
            timeout_s = None if end_s is None else max(0.0, end_s - clock.monotonic_s())
        return None

    def _taking(self, take: Callable[[], R]) -> R:
        """Return what `take` takes from the buffer; if it is interrupted, for example by a signal, put that back."""
        try:
            return take()
        except BaseException:
            self._buffer.put_back()
            raise

    async def _fill_buffer(self, timeout_s: float | None) -> PollOutcome:
        """Wait until the buffer has messages; runs the callbacks of assignment changes in between."""
        self._lifecycle.check()
        again = False
        self._buffer.begin()
        while not self._buffer.open():
            found = await self._do(self._engine.messages(timeout_s, again=again))
            again = True
            if isinstance(found, Change):
                await self._run_callback(found)
            elif found is not PollOutcome.HERE:
                return found
        return PollOutcome.HERE

    async def _next_arrow(self, timeout: Time | None) -> "pa.RecordBatch | None":
        from millstream.sdk.consuming.arrow import next_record_batch

        self._lifecycle.check()
        timeout_s = None if timeout is None else self._span_s(timeout)
        again = False
        self._buffer.begin()
        while (batch := self._taking(partial(next_record_batch, self._buffer))) is None:
            found = await self._do(self._engine.messages(timeout_s, again=again))
            again = True
            if isinstance(found, Change):
                await self._run_callback(found)
            elif found is not PollOutcome.HERE:
                return None
        return batch

    async def _run_callback(self, change: Change) -> None:
        """Run the callback of an assignment change, within its timeout; its exceptions are raised in the caller."""
        callback = self._callbacks[change.kind]
        if callback is not None:
            result = callback(change.places)
            if inspect.isawaitable(result):
                await self._do(bounded(result, change, self._callback_timeout_s))

    def _report_health(self) -> None:
        if self._on_health is not None:
            report(self._on_health, self._engine.health())

    async def _begin(self) -> None:
        await self.start()


def _named(partitions: Sequence[TopicPartition | tuple[str, int]]) -> list[TopicPartition] | None:
    return as_places("partitions", partitions) or None
