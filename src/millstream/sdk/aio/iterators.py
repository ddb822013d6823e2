"""Reads as one of a group with iterators: the coordinator says what is whose, and how far the group is."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Unpack

from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncPortal
from millstream.sdk.aio.reader import AsyncReader
from millstream.sdk.arguments import INT32_MAX, check_kind, check_number, named_topics, place
from millstream.sdk.client_context import ClientContext
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
    """Made by `client.iterators`. Use `async with`, or `close()` it, which leaves the group.

        async with client.iterators("orders", group="reports") as iterators:
            async for batch in iterators:
                for message in batch.messages:
                    ...

    The loop commits a batch when the next is asked for. Who wants to say more than that uses `get`, `read` and
    `commit`. It is for one task at a time (without `async`: one thread).
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
        """Whose client it is."""
        self.topics = named_topics(topics)
        """What the loop reads."""
        asking = context.asking(Role.CONSUMER)
        settings = engine_settings(context.times, asking.entropy, group, self.topics, options)
        self.client_id = settings.client_id
        """What the group knows it by."""
        context.lifecycle.check()
        self._engine = portal.call(partial(IteratorEngine, asking, settings))
        lifecycle = context.adopt("client of iterators", asking, lambda: self._engine.close(self._is_done))
        super().__init__(portal, context, lifecycle)

    @property
    def membership(self) -> IteratorMembership | None:
        """What the coordinator said last; None before the client has joined."""
        return self._engine.membership

    def __repr__(self) -> str:
        membership = self.membership
        owned = "not joined" if membership is None else f"{len(membership.owned)} partitions"
        owned = "closed" if self.closed else owned
        return f"<AsyncIterators of {self.client_id!r} in group {self.group!r}, {owned}>"

    # The group.

    async def join(self, *, timeout: Time = 30.0) -> IteratorMembership:
        """Become a member of the group; `async with` does it, and so does the loop.

        What is read is shared out when an iterator is asked for.
        """
        return await self._do(self._engine.join(self._span_s(timeout)))

    async def heartbeat(self, *, timeout: Time = 30.0) -> IteratorMembership:
        """What the client may get iterators of now. Beats go by themselves: this is for who wants to know."""
        return await self._do(self._engine.heartbeat(self._span_s(timeout)))

    async def leave(self, *, timeout: Time = 30.0) -> None:
        """Be no longer a member; `close()` does it."""
        await self._do(self._engine.leave(self._span_s(timeout)))

    # Single iterators.

    async def get(self, topic: str, partition: int, *, timeout: Time = 30.0) -> GroupIterator:
        """The iterator of a partition, from where the group is: the one in flight, if there is one.

        NOT_OWNER when the partition is another client's, or about to become this one's: the first call for a topic
        makes the client one of its readers, and `heartbeat` says what it has.
        """
        return await self._do(self._engine.get(place(topic, partition), self._span_s(timeout)))

    async def list(self, *, everybody: bool = False, timeout: Time = 30.0) -> Sequence[ListedIterator]:
        """What this client has in flight, or all clients of the group."""
        return await self._do(self._engine.in_flight(everybody, self._span_s(timeout)))

    async def read(self, iterator: GroupIterator, *, wait: Time = 5.0) -> IteratorBatch:
        """The messages of an iterator, from the server of its partition; waits so long for the first.

        ITERATOR_EXPIRED past its time in flight, FENCED_ITERATOR when somebody else has been given the partition.
        """
        check_kind("iterator", iterator, GroupIterator)
        return await self._do(self._engine.read(iterator, self._span_s(wait, "wait")))

    async def commit(self, batch: IteratorBatch, read: int | None = None, *, timeout: Time = 30.0) -> IteratorCommit:
        """So many of its messages were read, or all: the group goes on behind them. With the next iterator, if the
        partition stays the client's.

        NOT_OWNER when it is another client's, ITERATOR_SETTLED when it was committed or issued again since.
        """
        check_kind("batch", batch, IteratorBatch)
        _check_count("read", read)
        return await self._do(self._engine.commit(batch.iterator, batch.places(read), self._span_s(timeout)))

    # The loop.

    def __aiter__(self) -> AsyncIterator[IteratorBatch]:
        """Batches of whatever is the client's, for ever; each is committed when the next is asked for."""
        return self._each()

    async def _each(self) -> AsyncIterator[IteratorBatch]:
        while True:
            batch = await self.poll(None)
            if batch is not None:
                yield batch

    async def poll(self, timeout: Time | None = 5.0) -> IteratorBatch | None:
        """The next batch, and the one before is committed; None when none has come in time. None waits for ever."""
        timeout_s = None if timeout is None else self._span_s(timeout)
        return await self._do(self._engine.next_batch(timeout_s))

    async def finish(self, read: int | None = None) -> None:
        """Commit so many messages of the batch that `poll` or the loop gave last, or all, without asking for more."""
        _check_count("read", read)
        await self._do(self._engine.settle(read))

    async def _begin(self) -> None:
        await self._do(self._engine.start())


def _check_count(name: str, count: int | None) -> None:
    if count is not None:
        check_number(name, count, 0, INT32_MAX)
