"""Reads topics: by itself, from a place that it keeps, or as a member of a group that keeps it."""

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

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
    as_places,
    check_callback,
    check_number,
    check_text,
    named_topics,
    offsets_by_place,
    place,
)
from millstream.sdk.client_context import ClientContext
from millstream.sdk.consuming.callbacks import bounded, report
from millstream.sdk.consuming.decoding import decoder
from millstream.sdk.consuming.delivered_buffer import DeliveredBuffer
from millstream.sdk.consuming.engine import ConsumerEngine, PollOutcome
from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.consuming.options import ConsumerOptions, engine_settings
from millstream.sdk.consuming.partition_source import Change, ChangeKind
from millstream.sdk.consuming.read_at import get_messages
from millstream.sdk.consuming.start_positions import Hint, StartPositions
from millstream.sdk.fetching import MAX_BYTES
from millstream.sdk.time_arguments import Time

if TYPE_CHECKING:
    import pyarrow as pa

POLL_MESSAGES = 10_000


class AsyncConsumer(AsyncReader):
    """Made by `client.consumer`. Use `async with`, iterate over it, or `close()` it.

        async with client.consumer("orders", start="beginning") as consumer:
            async for message in consumer:
                ...

    Messages of one partition come in the order of their offsets, each once; over partitions there is no order. What was
    handed out counts as finished when more is asked for. It is for one task at a time (without `async`: one thread).
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        topics: str | Sequence[str],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.topics = named_topics(topics)
        """What it reads."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            check_callback(name, options.get(name), is_awaited=True)
        check_callback("on_health", options.get("on_health"))
        self.group = options.get("group")
        """Whose member it is; None for one that keeps its place by itself."""
        self._callbacks = {
            ChangeKind.ASSIGNED: options.get("on_assigned"),
            ChangeKind.REVOKED: options.get("on_revoked"),
            ChangeKind.LOST: options.get("on_lost"),
        }
        self._on_health = options.get("on_health")
        self._hand = DeliveredBuffer(decoder(options.get("values")), reads=portal.callers_wait)
        self._has_end = options.get("stop") is not None
        settings = engine_settings(context.times, self.topics, options)
        self._callback_timeout_s = settings.callback_timeout_s
        asking = context.asking(Role.CONSUMER)
        notice = None if self._on_health is None else self._notice
        context.lifecycle.check()
        self._engine = portal.call(partial(ConsumerEngine, asking, self._hand, settings, notice))
        lifecycle = context.adopt("consumer", asking, lambda: self._engine.close(finish=self._is_done), self._hand.drop)
        super().__init__(portal, context, lifecycle)
        self._asking = asking

    def __repr__(self) -> str:
        group = "" if self.group is None else f" in group {self.group!r}"
        return f"<AsyncConsumer of {', '.join(self.topics)}{group}, {self._engine.doing.value}>"

    async def start(self) -> None:
        """Join the group, or find where to begin; `async with` does it, and otherwise the first that is asked for."""
        await self._do(self._engine.start())

    # Reading.

    async def poll(self, timeout: Time | None = 5.0, max_messages: int = POLL_MESSAGES) -> list[Message]:
        """The next messages, as many as are here; empty when none has come in time, or when the range has ended.

        None waits for ever. Failures that pass are waited out. Raised is what will not: a group or topic that is
        refused, damaged messages, a value that cannot be decoded (UNDECODABLE_VALUE; the next call goes on behind it).
        Without a group, a topic that is gone is UNKNOWN_TOPIC_OR_PARTITION in every call that has no messages to give,
        unless its partitions are paused.
        """
        check_number("max_messages", max_messages, 1, INT64_MAX)
        await self._bring(timeout)
        return self._hand.some(max_messages)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages one by one, until the range ends."""
        return self._each()

    async def _each(self) -> AsyncIterator[Message]:
        while await self._bring(None) is not PollOutcome.OVER:
            take = self._hand.taker()
            try:
                while True:
                    yield take()
            except IndexError:
                pass  # There are no more here.

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """What comes of each partition at a time, until the range ends."""
        while await self._bring(None) is not PollOutcome.OVER:
            batch = self._batch()
            if batch is not None:
                yield batch

    async def poll_batch(self, timeout: Time | None = 5.0) -> MessageBatch | None:
        """The next messages of whichever partition has some; None when none has in time, or the range has ended."""
        await self._bring(timeout)
        return self._batch()

    def _batch(self) -> MessageBatch | None:
        messages = self._hand.one()
        if not messages:
            return None
        where = TopicPartition(*messages[0][:2])
        return MessageBatch(*where, messages, self._hand.positions()[where])

    async def arrow(self) -> "AsyncIterator[pa.RecordBatch]":
        """As `batches`, as Arrow record batches: topic, partition, offset, timestamp, key, value, headers.

        No Python object is made for a message; `values` are left as they are. Needs PyArrow (`millstream[arrow]`).
        """
        while True:
            found = await self._bring_arrow(None)
            if found is None:
                return
            yield found

    async def poll_arrow(self, timeout: Time | None = 5.0) -> "pa.RecordBatch | None":
        """The next record batch; None when none has come in time, or when the range has ended."""
        return await self._bring_arrow(timeout)

    async def arrow_table(self) -> "pa.Table":
        """All that is left of the range as one Arrow table, which may have no rows; its columns are those of `arrow`.

        INVALID_REQUEST without `stop`: there would be no end.
        """
        from millstream.sdk.consuming.arrow import as_table

        if not self._has_end:
            raise MillstreamError(
                ErrorCode.INVALID_REQUEST, 'a table has an end; say where: stop="latest", for example'
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
        max_bytes: int = MAX_BYTES,
        timeout: Time = 5.0,
    ) -> list[Message]:
        """Messages from this offset on, whatever this consumer reads otherwise: nobody keeps the position.

        About `max_bytes`, and no more than `max_messages`. With none there yet, and at a place that is not reached,
        it waits for the first for up to `timeout`. So long are failures waited out too; then they are raised.
        OFFSET_OUT_OF_RANGE, saying where the partition begins, when the place is gone.
        """
        where, timeout_s = place(topic, partition), self._span_s(timeout)
        check_number("offset", offset, 0, INT64_MAX)
        check_number("max_bytes", max_bytes, 1, INT32_MAX)
        return await self._do(get_messages(self._asking, where, offset, max_messages, max_bytes, timeout_s))

    # Where it is.

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions it reads at the moment."""
        return self._engine.assignment

    def position(self, topic: str, partition: int) -> int | None:
        """Where its next message of this partition begins; None for one that it does not read."""
        return self._engine.position(place(topic, partition))

    async def seek(self, to: Hint, *partitions: TopicPartition | tuple[str, int], timeout: Time = 30.0) -> None:
        """Go on there: in these partitions, or in all. `to` is what `start` may be."""
        places = StartPositions(to, self._context.times, "to")
        await self._do(self._engine.seek(places, _named(partitions), self._span_s(timeout)))

    async def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Hand out nothing of these, or of all, until `resume`. What was handed out already stays with the caller."""
        await self._do(self._engine.pause(_named(partitions)))

    async def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Go on with these, or with all."""
        await self._do(self._engine.resume(_named(partitions)))

    async def lag(self, *, timeout: Time = 30.0) -> dict[TopicPartition, int]:
        """How far each partition's end is from where this consumer is, in offsets."""
        return await self._do(self._engine.lag(self._span_s(timeout)))

    # Its group.

    @property
    def member_id(self) -> str:
        """What its group calls it; INVALID_REQUEST without a group."""
        return self._engine.membership.core.member_id

    async def commit(
        self,
        what: Message | Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
        *,
        metadata: str = "",
        timeout: Time = 10.0,
    ) -> None:
        """Let the group go on behind a message, at these offsets, or behind everything handed out so far.

        `metadata` is a text of the caller's own that is kept beside the offsets. FENCED_MEMBER_EPOCH or
        UNKNOWN_MEMBER_ID when the partitions have gone to others meanwhile: what this consumer did with their messages,
        another does again.
        """
        self._hand.turns += 1
        if isinstance(what, Message):
            what = {TopicPartition(what.topic, what.partition): what.offset + 1}
        offsets = None if what is None else offsets_by_place("what", what)
        check_text("metadata", metadata, 0, TEXT_MAX)
        await self._do(self._engine.commit(offsets, metadata, self._span_s(timeout)))

    def alive(self) -> None:
        """Say, in the middle of long work, that it goes on: `handler_timeout` begins anew."""
        self._hand.turns += 1

    def health(self) -> Health:
        """What it is doing, for how long, and why it waits."""
        return self._call(self._engine.health)

    # How it is done.

    async def _bring(self, timeout: Time | None) -> PollOutcome:
        """Have messages in hand; the group's changes are told in between."""
        self._lifecycle.check()
        timeout_s = None if timeout is None else self._span_s(timeout)
        again = False
        while not self._hand.open():
            found = await self._do(self._engine.messages(timeout_s, again=again))
            again = True
            if isinstance(found, Change):
                await self._tell(found)
            elif found is not PollOutcome.HERE:
                return found
        return PollOutcome.HERE

    async def _bring_arrow(self, timeout: Time | None) -> "pa.RecordBatch | None":
        from millstream.sdk.consuming.arrow import next_record_batch

        self._lifecycle.check()
        timeout_s = None if timeout is None else self._span_s(timeout)
        again = False
        while (batch := next_record_batch(self._hand)) is None:
            found = await self._do(self._engine.messages(timeout_s, again=again))
            again = True
            if isinstance(found, Change):
                await self._tell(found)
            elif found is not PollOutcome.HERE:
                return None
        return batch

    async def _tell(self, change: Change) -> None:
        """What a callback raises is the caller's; one that takes too long is given up, and the group goes on."""
        callback = self._callbacks[change.kind]
        if callback is not None:
            told = callback(change.places)
            if inspect.isawaitable(told):
                await self._do(bounded(told, change, self._callback_timeout_s))

    def _notice(self) -> None:
        if self._on_health is not None:
            report(self._on_health, self._engine.health())

    async def _begin(self) -> None:
        if self.topics:
            await self.start()


def _named(partitions: Sequence[TopicPartition | tuple[str, int]]) -> list[TopicPartition] | None:
    return as_places("partitions", partitions) or None
