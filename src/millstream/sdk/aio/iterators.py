"""The iterator reader reads topics with iterators, which the group's coordinator issues to each member."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any, Unpack

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.reader import AsyncReader
from millstream.sdk.arguments import INT32_MAX, check_kind, check_number, named_topics, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.iterating.engine import IteratorEngine
from millstream.sdk.iterating.options import IteratorOptions, engine_settings
from millstream.sdk.iterating.requests import (
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.time_arguments import Time


class AsyncIterators(AsyncReader):
    """Reads topics with iterators, as a member of a group. Create it with `client.iterators`.

    Use `async with` or call `close()`, which leaves the group.

        async with client.iterators("orders", group="reports") as iterators:
            async for batch in iterators:
                for message in batch.messages:
                    ...

    The loop commits a batch when the caller requests the next one. For full control use `get`, `read` and `commit`
    instead. Only one task or thread may use the object at a time.
    """

    def __init__(
        self,
        portal: AsyncPortal,
        context: ClientContext,
        topics: str | Sequence[str],
        group: str,
        **options: Unpack[IteratorOptions],
    ) -> None:
        self.group = group
        """The group that it belongs to."""
        self.topics = named_topics(topics)
        """The topics that the loop reads."""
        caller = context.new_caller(Role.CONSUMER, owner="iterators")
        settings = engine_settings(context.times, caller.entropy, group, self.topics, options)
        self.client_id = settings.client_id
        """The name under which the group knows this client."""
        self._received: IteratorBatch | None = None
        """The last batch that `poll` or the loop returned."""
        context.lifecycle.check()
        self._engine = portal.call(partial(IteratorEngine, caller, settings))
        lifecycle = context.adopt("client of iterators", caller, self._end)
        super().__init__(portal, context, lifecycle)

    @property
    def membership(self) -> IteratorMembership | None:
        """The membership in the coordinator's last answer; None before the client has joined."""
        return self._engine.membership

    def __repr__(self) -> str:
        membership = self.membership
        owned = "not joined" if membership is None else f"{len(membership.owned)} partitions"
        owned = "closed" if self.closed else owned
        return f"<AsyncIterators of {self.client_id!r} in group {self.group!r}, {owned}>"

    def health(self) -> ConnectionHealth:
        """Return whether the brokers are reachable, since when, and the reason if not."""
        return self._call(self._engine.health)

    # The group.

    async def join(self, *, timeout: Time = 30.0) -> IteratorMembership:
        """Join the group. `async with` and the loop call it.

        Joining assigns no partitions: the first `get` for a topic makes this client a reader of that topic.
        """
        return await self._do(self._engine.join(self._span_s(timeout)))

    async def heartbeat(self, *, timeout: Time = 30.0) -> IteratorMembership:
        """Return the partitions that this client owns now. Heartbeats are sent automatically after `join`."""
        return await self._do(self._engine.heartbeat(self._span_s(timeout)))

    async def leave(self, *, timeout: Time = 30.0) -> None:
        """Leave the group; `close()` calls it."""
        await self._do(self._engine.leave(self._span_s(timeout)))

    # Single iterators.

    async def get(self, topic: str, partition: int, *, timeout: Time = 30.0) -> GroupIterator:
        """Return an iterator of a partition from the group's offset; the one in flight, if there is one.

        The first call for a topic makes this client a reader of the topic and starts a rebalance. Raises NOT_OWNER
        until the partition is assigned to this client; `heartbeat` returns the assigned partitions.
        """
        return await self._do(self._engine.get(place(topic, partition), self._span_s(timeout)))

    async def list(self, *, everybody: bool = False, timeout: Time = 30.0) -> Sequence[ListedIterator]:
        """Return the iterators in flight of this client, or of all clients of the group."""
        return await self._do(self._engine.in_flight(everybody, self._span_s(timeout)))

    async def read(self, iterator: GroupIterator, *, wait: Time = 5.0) -> IteratorBatch:
        """Read the messages of an iterator from its partition's broker; waits for the first one for up to `wait`.

        Raises ITERATOR_EXPIRED after the iterator's time limit, and FENCED_ITERATOR if the partition has been assigned
        to another client. A stored batch that cannot be decoded ends the result; if it is the first, it raises
        UnreadableError, or is skipped with `on_bad_batch="skip"`. To skip it once, commit the iterator up to the
        error's `next_offset`.
        """
        check_kind("iterator", iterator, GroupIterator)
        return await self._do(self._engine.read(iterator, self._span_s(wait, "wait")))

    async def commit(
        self, batch: IteratorBatch | GroupIterator, read: int | None = None, *, timeout: Time = 30.0
    ) -> IteratorCommit:
        """Commit the first `read` messages of a batch, or all of them; of an iterator, the first `read` offsets.

        The result has the next iterator if the partition stays assigned to this client. Raises NOT_OWNER if another
        client owns the partition, and ITERATOR_SETTLED if the iterator was committed before or issued again.
        """
        check_kind("batch", batch, IteratorBatch, GroupIterator)
        _check_count("read", read)
        timeout_s = self._span_s(timeout)
        if isinstance(batch, IteratorBatch):
            return await self._do(self._engine.commit(batch.iterator, batch.places(read), timeout_s))
        if read is None:
            text = "read: the commit of an iterator needs the number of offsets"
            raise MillstreamError(ErrorCode.INVALID_SETTING, text)
        return await self._do(self._engine.commit(batch, read, timeout_s))

    # The loop.

    def __aiter__(self) -> AsyncIterator[IteratorBatch]:
        """Iterate over batches of the assigned partitions, without an end. Requesting a batch commits the last one."""
        return self._each()

    async def _each(self) -> AsyncIterator[IteratorBatch]:
        while True:
            batch = await self.poll(None)
            if batch is not None:
                yield batch

    async def poll(self, timeout: Time | None = 5.0) -> IteratorBatch | None:
        """Commit the previous batch and return the next one; None if no message arrived within `timeout`.

        `timeout=None` waits without a limit. If a call is interrupted, for example by a signal handler that raises, the
        next call returns the batch that it did not return.
        """
        timeout_s = None if timeout is None else self._span_s(timeout)
        batch = await self._do(self._engine.next_batch(timeout_s, self._received))
        if batch is not None:
            self._received = batch  # No call between here and the return: a signal handler could raise in it.
        return batch

    async def finish(self, read: int | None = None) -> None:
        """Commit the first `read` messages of the last batch of `poll` or the loop, or all, without reading more."""
        _check_count("read", read)
        await self._do(self._engine.settle(self._received, read))

    def _end(self) -> Coroutine[Any, Any, None]:
        return self._engine.close(self._received if self._is_done else None)

    async def _begin(self) -> None:
        await self._do(self._engine.start())


def _check_count(name: str, count: int | None) -> None:
    if count is not None:
        check_number(name, count, least=0, most=INT32_MAX)
