"""The iterator calls are a stateless interface to iterators: each call names its group and its client."""

import builtins
from functools import partial

from millstream.model.errors import ErrorCode
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncFacade, AsyncPortal
from millstream.sdk.arguments import INT32_MAX, NAME_MAX, Size, as_size, check_kind, check_number, check_text, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.feed.undecodable_batches import skips_bad_batches
from millstream.sdk.iterating.call_engine import IteratorCallEngine
from millstream.sdk.iterating.options import wanted
from millstream.sdk.iterating.requests import (
    DELIVERED,
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.reader_defaults import ITERATOR_MESSAGES
from millstream.sdk.time_arguments import Time


class AsyncIteratorCalls(AsyncFacade):
    """Calls the iterator API on behalf of many clients. Create it with `client.iterator_calls`.

    Each call names the group and the client. No state is kept between calls, so successive calls of a client may come
    from different processes. A gateway serves any number of clients with one object.

        calls = client.iterator_calls()
        await calls.join("reports", "a")
        iterator = await calls.get("reports", "a", "orders", 0)
        batch = await calls.read(iterator)
        await calls.deliver("reports", "a", batch)
        ...
        for listed in await calls.list("reports", "a"):  # In this process or another one.
            await calls.commit("reports", "a", listed.iterator)

    No heartbeats are sent automatically: a client stays in its group as long as calls are made for it. Calls may run
    concurrently.
    """

    def __init__(self, portal: AsyncPortal, context: ClientContext) -> None:
        caller = context.new_caller(Role.CONSUMER, owner="iterators")
        context.lifecycle.check()
        self._engine = portal.call(partial(IteratorCallEngine, caller))
        super().__init__(portal, context, context.adopt("calls of iterators", caller, self._engine.close))

    async def join(self, group: str, client_id: str, *, timeout: Time = 30.0) -> IteratorMembership:
        """Join the group, or renew the membership; returns it with the partitions that the client owns."""
        return await self._do(self._engine.join(*_names(group, client_id), self._span_s(timeout)))

    async def heartbeat(self, group: str, client_id: str, *, timeout: Time = 30.0) -> IteratorMembership:
        """Renew the membership and return it; raises UNKNOWN_MEMBER_ID if the client is not a member."""
        return await self._do(self._engine.heartbeat(*_names(group, client_id), self._span_s(timeout)))

    async def leave(self, group: str, client_id: str, *, timeout: Time = 30.0) -> None:
        """Leave the group, which assigns the client's partitions to other clients.

        Raises UNKNOWN_MEMBER_ID if the client is not a member.
        """
        await self._do(self._engine.leave(*_names(group, client_id), self._span_s(timeout)))

    async def get(
        self,
        group: str,
        client_id: str,
        topic: str,
        partition: int,
        *,
        max_messages: int = ITERATOR_MESSAGES,
        in_flight: Time | None = None,
        start: str = "beginning",
        timeout: Time = 30.0,
    ) -> GroupIterator:
        """Return an iterator of a partition from the group's offset; the one in flight, if there is one.

        The first call for a topic makes the client a reader of the topic and starts a rebalance. Raises NOT_OWNER until
        the partition is assigned to the client. `in_flight` is the time limit for committing the iterator.
        """
        where, iterator = place(topic, partition), wanted(self._context.times, max_messages, in_flight, start)
        return await self._do(self._engine.get(*_names(group, client_id), where, iterator, self._span_s(timeout)))

    async def list(
        self, group: str, client_id: str | None = None, *, timeout: Time = 30.0
    ) -> builtins.list[ListedIterator]:
        """Return the iterators in flight of a client, or of all clients of the group without `client_id`.

        For a single client the entries include the iterator and the number of delivered offsets. Raises
        GROUP_ID_NOT_FOUND if no such group uses iterators.
        """
        check_text("group", group, least=1, most=NAME_MAX, code=ErrorCode.INVALID_GROUP_ID)
        if client_id is not None:
            check_text("client_id", client_id, least=1, most=NAME_MAX)
        return await self._do(self._engine.in_flight(group, client_id, self._span_s(timeout)))

    async def read(
        self,
        iterator: GroupIterator,
        *,
        max_bytes: Size = 1024 * 1024,
        on_bad_batch: str = "raise",
        timeout: Time = 30.0,
    ) -> IteratorBatch:
        """Read the available messages of an iterator from its partition's broker, without waiting for new ones.

        Raises ITERATOR_EXPIRED after the iterator's time limit, and FENCED_ITERATOR if the partition has been assigned
        to another client. A stored batch that cannot be decoded ends the result; if it is the first, it raises
        UnreadableError, or is skipped with `on_bad_batch="skip"`.
        """
        check_kind("iterator", iterator, GroupIterator)
        size_bytes = as_size("max_bytes", max_bytes, most=INT32_MAX)
        skips = skips_bad_batches(on_bad_batch)
        return await self._do(self._engine.read(iterator, size_bytes, self._span_s(timeout), skips_bad_batches=skips))

    async def deliver(
        self,
        group: str,
        client_id: str,
        batch: IteratorBatch | GroupIterator,
        count: int | None = None,
        *,
        timeout: Time = 30.0,
    ) -> float:
        """Record that messages were delivered to the client; returns for how many seconds they are in flight now.

        For a batch, `count` is a number of messages (default: all). For an iterator that has an offset, it is a number
        of offsets. The new number replaces an earlier one. Raises ITERATOR_EXPIRED after the iterator's time limit,
        NOT_OWNER if another client owns the partition, and ITERATOR_SETTLED if the iterator was committed before or
        issued again.
        """
        iterator, offsets = _counted(batch, count)
        return await self._do(self._engine.deliver(*_names(group, client_id), iterator, offsets, self._span_s(timeout)))

    async def commit(
        self,
        group: str,
        client_id: str,
        batch: IteratorBatch | GroupIterator,
        count: int | None = None,
        *,
        timeout: Time = 30.0,
    ) -> IteratorCommit:
        """Commit finished messages; returns the next iterator if the partition stays assigned to the client.

        For a batch, `count` is a number of messages (default: all). For an iterator, it is a number of offsets
        (default: those recorded by `deliver`). Raises NOT_OWNER if another client owns the partition, ITERATOR_SETTLED
        if the iterator was committed before or issued again, and NOTHING_DELIVERED if no delivery was recorded.
        """
        iterator, offsets = _counted(batch, count)
        return await self._do(self._engine.commit(*_names(group, client_id), iterator, offsets, self._span_s(timeout)))


def _names(group: str, client_id: str) -> tuple[str, str]:
    """Check both names; raises INVALID_GROUP_ID or INVALID_SETTING."""
    check_text("group", group, least=1, most=NAME_MAX, code=ErrorCode.INVALID_GROUP_ID)
    check_text("client_id", client_id, least=1, most=NAME_MAX)
    return group, client_id


def _counted(batch: IteratorBatch | GroupIterator, count: int | None) -> tuple[GroupIterator, int]:
    check_kind("batch", batch, IteratorBatch, GroupIterator)
    if count is not None:
        check_number("count", count, least=0, most=INT32_MAX)
    if isinstance(batch, IteratorBatch):
        return batch.iterator, batch.places(count)
    return batch, DELIVERED if count is None else count
