"""The push subscription receives messages that brokers send as fast as the caller finishes them."""

from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Unpack

from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.records.message import Message
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.reader import AsyncReader
from millstream.sdk.arguments import TEXT_MAX, check_text, named_topics, offsets_by_place, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.consuming.bad_values import RAISE, SkippingDecoder, bad_value_decoder
from millstream.sdk.consuming.decoding import decode_first, decode_some, decoder
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.subscribing.engine import DeliveredMessages, SubscriptionEngine
from millstream.sdk.subscribing.options import SubscriptionOptions, engine_settings
from millstream.sdk.time_arguments import Time
from millstream.sdk.value_formats import V_co
from millstream.seams.signal_handlers import raised_by_signal_handler


class AsyncSubscription(AsyncReader, Generic[V_co]):
    """Receives messages that brokers push. Create it with `client.subscription`; use `async with` or call `close()`.

        async with client.subscription("orders", start="beginning") as subscription:
            async for message in subscription:
                ...

    Each broker sends messages without requests until the window of unfinished messages is full. Delivered messages
    count as finished when the caller requests more, which makes room in the window. Messages of one partition arrive in
    offset order, each once, also across reconnects. Only one task or thread may use a subscription at a time.
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        topics: str | Sequence[str],
        **options: Unpack[SubscriptionOptions],
    ) -> None:
        self.topics = named_topics(topics)
        """The topics that it receives."""
        self.group = options.get("group")
        """The group that stores its offsets; None for a subscription that tracks its own position."""
        self._decode = bad_value_decoder(
            decoder(options.get("values")), options.get("on_bad_value", RAISE), context.clock.monotonic_s
        )
        self._decode_first = None if self._decode is None else partial(decode_first, self._decode)
        self._delivery: DeliveredMessages | None = None
        self._untaken: deque[Message] = deque()
        self._in_work = 1
        """Number of messages of the last call; they are in work until the caller requests more."""
        settings = engine_settings(context.times, self.topics, options)
        caller = context.new_caller(Role.CONSUMER, owner="subscription")
        context.lifecycle.check()
        skipping = self._decode if isinstance(self._decode, SkippingDecoder) else None
        self._engine = portal.call(partial(SubscriptionEngine, caller, settings, skipping))
        lifecycle = context.adopt("subscription", caller, self._end, lambda: self._untaken.clear())
        super().__init__(portal, context, lifecycle)

    def __repr__(self) -> str:
        group = "" if self.group is None else f" for group {self.group!r}"
        state = "closed" if self.closed else f"{len(self._engine.positions)} partitions"
        return f"<AsyncSubscription to {', '.join(self.topics)}{group}, {state}>"

    async def start(self) -> None:
        """Subscribe at the brokers. `async with` calls it; without `async with` the first read does."""
        await self._do(self._engine.start())

    # Reading.

    def __aiter__(self) -> "AsyncIterator[Message[V_co]]":
        """Iterate over single messages, without an end."""
        return self._each()

    async def _each(self) -> "AsyncIterator[Message[V_co]]":
        while True:
            decode = self._decode_first
            self._in_work = 1
            try:
                while True:
                    message = self._untaken[0] if decode is None else decode(self._untaken)
                    del self._untaken[0]  # Not `popleft()`: a signal handler may raise after a call.
                    yield message
            except IndexError:
                pass  # The delivery is used up.
            await self._next_delivery(None)

    async def batches(self) -> AsyncIterator[MessageBatch[V_co]]:
        """Iterate over batches, each with messages of one partition, without an end."""
        while True:
            batch = await self.poll_batch(None)
            if batch is not None:
                yield batch

    async def poll(self, timeout: Time | None = 5.0) -> "list[Message[V_co]]":
        """Return the next messages of one partition; the list is empty if no message arrived within `timeout`.

        `timeout=None` waits without a limit. Transient failures are retried. Permanent failures are raised: a refused
        topic or group, with `out_of_range="error"` messages removed before they were sent (OFFSET_OUT_OF_RANGE),
        damaged messages, a value that cannot be decoded (UNDECODABLE_VALUE; the next call continues after it).
        """
        messages, untaken = await self._next_messages(timeout)
        count = len(messages)
        self._untaken, self._in_work = untaken, count  # No call after this line, in which a signal handler could raise.
        return messages

    async def poll_batch(self, timeout: Time | None = 5.0) -> MessageBatch[V_co] | None:
        """Return the messages of `poll` with their partition and the next offset; None if none arrived in time."""
        messages, untaken = await self._next_messages(timeout)
        delivery, count = self._delivery, len(messages)
        if not messages or delivery is None:
            return None
        next_offset = delivery.behind(len(delivery.messages) - len(untaken))
        batch = MessageBatch(*delivery.where, messages, next_offset)
        self._untaken, self._in_work = untaken, count
        return batch

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next message of this partition; None if it is not subscribed to."""
        where = place(topic, partition)
        delivery = self._delivery
        if delivery is not None and delivery.where == where:
            return delivery.behind(self._taken)
        return self._engine.positions.get(where)

    def health(self) -> ConnectionHealth:
        """Return whether the brokers are reachable, since when, the reason if not, and the bytes not delivered yet."""
        return self._call(self._engine.health)

    # Committing.

    async def commit(
        self,
        what: Message | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
        *,
        metadata: str = "",
        timeout: Time = 10.0,
    ) -> None:
        """Mark messages as finished, which makes room in the window; with a group, also store the offsets.

        `what` is a message (all messages of its partition up to it), a dict of offsets to continue at, or None (all
        delivered messages). With a group the offsets are durable when this call returns. It is needed only with
        `auto_commit=None`. Then brokers pause until the configured share of a full window is committed.
        """
        if isinstance(what, Message):
            offsets = {TopicPartition(what.topic, what.partition): what.offset + 1}
        elif what is None:
            offsets = dict(self._engine.positions)
            if self._delivery is not None:
                offsets[self._delivery.where] = self._delivery.behind(self._taken)
        else:
            offsets = offsets_by_place("what", what)
        check_text("metadata", metadata, least=0, most=TEXT_MAX)
        await self._do(self._engine.commit(offsets, metadata, self._span_s(timeout)))

    # Implementation.

    @property
    def _taken(self) -> int:
        """Number of messages of the delivery that the caller has taken."""
        return 0 if self._delivery is None else len(self._delivery.messages) - len(self._untaken)

    @property
    def _finished(self) -> int:
        """Number of taken messages that are certainly finished."""
        return self._taken if self._is_done else max(0, self._taken - self._in_work)

    async def _next_delivery(self, timeout: Time | None) -> None:
        """Wait for the next delivery; the messages of the previous one are finished."""
        timeout_s = None if timeout is None else self._span_s(timeout)
        delivery = await self._do(self._engine.next(timeout_s, self._delivery))
        untaken = deque(() if delivery is None else delivery.messages)
        self._delivery, self._untaken = delivery, untaken

    async def _next_messages(self, timeout: Time | None) -> tuple[list[Message], deque[Message]]:
        """Return the messages that the next call returns, and those that are left after it. Takes none of them yet."""
        self._lifecycle.check()
        now_s = self._context.clock.monotonic_s
        end_s = None if timeout is None else now_s() + self._span_s(timeout)
        while True:
            if not self._untaken:
                await self._next_delivery(None if end_s is None else max(0.0, end_s - now_s()))
            found, left = list(self._untaken), deque[Message]()
            messages = found if self._decode is None or not found else self._decoded(found, left)
            if messages or not found:
                return messages, left
            self._untaken = left  # Every message was skipped.

    def _decoded(self, found: list[Message], left: deque[Message]) -> list[Message]:
        """Decode messages up to the first one that raises, which goes to `left` with its successors."""
        assert self._decode is not None
        try:
            return decode_some(self._decode, found, left)
        except Exception as error:
            if not raised_by_signal_handler(error):
                self._untaken, self._in_work = left, 1  # The message is skipped.
            raise

    def _end(self) -> Coroutine[Any, Any, None]:
        end = self._engine.close(self._delivery, self._finished)
        self._untaken.clear()
        return end

    async def _begin(self) -> None:
        await self.start()
