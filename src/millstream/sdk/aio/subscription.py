"""Is sent messages by the brokers, as fast as it finishes them."""

from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.records.message import Message
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.reader import AsyncReader
from millstream.sdk.arguments import TEXT_MAX, check_text, named_topics, offsets_by_place, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.consuming.decoding import decode_some, decoder
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.subscribing.engine import DeliveredMessages, SubscriptionEngine
from millstream.sdk.subscribing.options import SubscriptionOptions, engine_settings
from millstream.sdk.time_arguments import Time


class AsyncSubscription(AsyncReader):
    """Made by `client.subscription`. Use `async with`, iterate over it, or `close()` it.

        async with client.subscription("orders", start="beginning") as subscription:
            async for message in subscription:
                ...

    The brokers send without being asked, as long as no more than the window is under way; what was handed out counts
    as finished when more is asked for, and makes room for more. Messages of one partition come in the order of their
    offsets, each once, also when connections are lost. It is for one task at a time (without `async`: one thread).
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        topics: str | Sequence[str],
        **options: Unpack[SubscriptionOptions],
    ) -> None:
        self.topics = named_topics(topics)
        """What it is sent."""
        self.group = options.get("group")
        """Who keeps its place; None for one that keeps it by itself."""
        self._decode = decoder(options.get("values"))
        self._portion: DeliveredMessages | None = None
        self._left: deque[Message] = deque()
        self._handed = 1
        """How many messages were handed out at once, and are in work until more is asked for."""
        settings = engine_settings(context.times, self.topics, options)
        asking = context.asking(Role.CONSUMER)
        context.lifecycle.check()
        self._engine = portal.call(partial(SubscriptionEngine, asking, settings))
        super().__init__(portal, context, context.adopt("subscription", asking, self._end, lambda: self._left.clear()))

    def __repr__(self) -> str:
        group = "" if self.group is None else f" for group {self.group!r}"
        state = "closed" if self.closed else f"{len(self._engine.positions)} partitions"
        return f"<AsyncSubscription to {', '.join(self.topics)}{group}, {state}>"

    async def start(self) -> None:
        """Subscribe; `async with` does it, and otherwise the first that is asked for."""
        await self._do(self._engine.start())

    # Reading.

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages one by one, for ever."""
        return self._each()

    async def _each(self) -> AsyncIterator[Message]:
        while True:
            take, decode = self._left.popleft, self._decode
            self._handed = 1
            try:
                while True:
                    yield take() if decode is None else decode(take())
            except IndexError:
                pass  # There are no more here.
            await self._bring(None)

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """What comes of each partition at a time, for ever."""
        while True:
            batch = await self.poll_batch(None)
            if batch is not None:
                yield batch

    async def poll(self, timeout: Time | None = 5.0) -> list[Message]:
        """The next messages of whichever partition has some; empty when none has come in time. None waits for ever.

        Failures that pass are waited out. Raised is what will not: a topic or a group that is refused, messages that
        were removed before they came (OFFSET_OUT_OF_RANGE, unless `when_gone` says otherwise) or are damaged, a value
        that cannot be decoded (UNDECODABLE_VALUE; the next call goes on behind it).
        """
        self._lifecycle.check()
        if not self._left:
            await self._bring(timeout)
        messages = list(self._left)
        self._left.clear()
        if self._decode is not None:
            self._handed = 1
            messages = decode_some(self._decode, messages, self._left)
        self._handed = len(messages)
        return messages

    async def poll_batch(self, timeout: Time | None = 5.0) -> MessageBatch | None:
        """As `poll`, with where they come from; None when none has come in time."""
        messages = await self.poll(timeout)
        if not messages or self._portion is None:
            return None
        return MessageBatch(*self._portion.where, messages, self._portion.behind(self._taken))

    def position(self, topic: str, partition: int) -> int | None:
        """Where its next message of this partition begins; None for one that it is not sent."""
        where = place(topic, partition)
        portion = self._portion
        if portion is not None and portion.where == where:
            return portion.behind(self._taken)
        return self._engine.positions.get(where)

    # Committing.

    async def commit(
        self,
        what: Message | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
        *,
        metadata: str = "",
        timeout: Time = 10.0,
    ) -> None:
        """Everything up to a message, before these offsets, or that was handed out is done with: more may come.

        With a group it is also where the group goes on, and kept when this returns. Needed only with
        `auto_commit=None`; who commits less than the share of the window is sent no more.
        """
        if isinstance(what, Message):
            offsets = {TopicPartition(what.topic, what.partition): what.offset + 1}
        elif what is None:
            offsets = dict(self._engine.positions)
            if self._portion is not None:
                offsets[self._portion.where] = self._portion.behind(self._taken)
        else:
            offsets = offsets_by_place("what", what)
        check_text("metadata", metadata, 0, TEXT_MAX)
        await self._do(self._engine.commit(offsets, metadata, self._span_s(timeout)))

    # How it is done.

    @property
    def _taken(self) -> int:
        """How many messages of its portion were handed out."""
        return 0 if self._portion is None else len(self._portion.messages) - len(self._left)

    @property
    def _finished(self) -> int:
        """How many of them are done with for certain."""
        return self._taken if self._is_done else max(0, self._taken - self._handed)

    async def _bring(self, timeout: Time | None) -> None:
        """Have messages brought to hand; those that were there are finished."""
        timeout_s = None if timeout is None else self._span_s(timeout)
        done, self._portion = self._portion, None
        portion = await self._do(self._engine.next(timeout_s, done))
        if portion is not None:
            self._portion = portion
            self._left = deque(portion.messages)

    def _end(self) -> Coroutine[Any, Any, None]:
        end = self._engine.close(self._portion, self._finished)
        self._left.clear()
        return end

    async def _begin(self) -> None:
        await self.start()
