"""Single calls for clients of a group that keep no state in this process."""

import builtins
from functools import partial

from millstream.model.errors import ErrorCode
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncFacade, AsyncPortal
from millstream.sdk.arguments import INT32_MAX, NAME_MAX, check_kind, check_number, check_text, place
from millstream.sdk.client_context import ClientContext
from millstream.sdk.iterating.call_engine import IteratorCallEngine
from millstream.sdk.iterating.options import MAX_MESSAGES, wanted
from millstream.sdk.iterating.requests import (
    HANDED,
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.time_arguments import Time


class AsyncIteratorCalls(AsyncFacade):
    """Made by `client.iterator_calls`. Each call says for which client of which group it is made, and may as well be
    made in another process than the one before: a gateway serves any number of clients with one of these.

        calls = client.iterator_calls()
        await calls.join("reports", "a")
        iterator = await calls.get("reports", "a", "orders", 0)
        batch = await calls.read(iterator)
        await calls.deliver("reports", "a", batch)
        ...
        for listed in await calls.list("reports", "a"):  # Here, or elsewhere.
            await calls.commit("reports", "a", listed.iterator)

    Nobody beats for the client: it stays in its group as long as calls are made for it. Many may be made at once.
    """

    def __init__(self, portal: AsyncPortal, context: ClientContext) -> None:
        asking = context.asking(Role.CONSUMER)
        context.lifecycle.check()
        self._engine = portal.call(partial(IteratorCallEngine, asking))
        super().__init__(portal, context, context.adopt("calls of iterators", asking, self._engine.close))

    async def join(self, group: str, client_id: str, *, timeout: Time = 30.0) -> IteratorMembership:
        """Be a member of the group, and heard of, whether it was one before or not; with what is the client's."""
        return await self._do(self._engine.join(*_names(group, client_id), self._span_s(timeout)))

    async def heartbeat(self, group: str, client_id: str, *, timeout: Time = 30.0) -> IteratorMembership:
        """As `join`, but UNKNOWN_MEMBER_ID for who is not a member, or no longer."""
        return await self._do(self._engine.heartbeat(*_names(group, client_id), self._span_s(timeout)))

    async def leave(self, group: str, client_id: str, *, timeout: Time = 30.0) -> None:
        """Be no longer a member: what the client has goes to the others. UNKNOWN_MEMBER_ID for who is none."""
        await self._do(self._engine.leave(*_names(group, client_id), self._span_s(timeout)))

    async def get(
        self,
        group: str,
        client_id: str,
        topic: str,
        partition: int,
        *,
        max_messages: int = MAX_MESSAGES,
        in_flight: Time | None = None,
        start: str = "beginning",
        timeout: Time = 30.0,
    ) -> GroupIterator:
        """The iterator of a partition, from where the group is: the one in flight, if there is one.

        NOT_OWNER when the partition is another client's, or about to become this one's: the first call for a topic
        makes the client one of its readers.
        """
        where, iterator = place(topic, partition), wanted(self._context.times, max_messages, in_flight, start)
        return await self._do(self._engine.get(*_names(group, client_id), where, iterator, self._span_s(timeout)))

    async def list(
        self, group: str, client_id: str | None = None, *, timeout: Time = 30.0
    ) -> builtins.list[ListedIterator]:
        """What a client has in flight, with the iterators and what was handed on of them; or all clients, without.

        GROUP_ID_NOT_FOUND when there is no such group of iterators.
        """
        check_text("group", group, 1, NAME_MAX, ErrorCode.INVALID_GROUP_ID)
        if client_id is not None:
            check_text("client_id", client_id, 1, NAME_MAX)
        return await self._do(self._engine.in_flight(group, client_id, self._span_s(timeout)))

    async def read(
        self, iterator: GroupIterator, *, max_bytes: int = 1024 * 1024, timeout: Time = 30.0
    ) -> IteratorBatch:
        """The messages of an iterator that are there now, from the server of its partition.

        ITERATOR_EXPIRED past its time in flight, FENCED_ITERATOR when somebody else has been given the partition.
        """
        check_kind("iterator", iterator, GroupIterator)
        check_number("max_bytes", max_bytes, 1, INT32_MAX)
        return await self._do(self._engine.read(iterator, max_bytes, self._span_s(timeout)))

    async def deliver(
        self,
        group: str,
        client_id: str,
        batch: IteratorBatch | GroupIterator,
        count: int | None = None,
        *,
        timeout: Time = 30.0,
    ) -> float:
        """Note that messages of a batch were handed on: all, or so many; of an iterator with an offset, so many places
        of the log. For so many seconds it is in flight now.

        Replaces what was noted before. ITERATOR_EXPIRED past its time in flight, NOT_OWNER when the partition is
        another client's, ITERATOR_SETTLED when it was committed or issued again since.
        """
        iterator, places = _counted(batch, count)
        return await self._do(self._engine.deliver(*_names(group, client_id), iterator, places, self._span_s(timeout)))

    async def commit(
        self,
        group: str,
        client_id: str,
        batch: IteratorBatch | GroupIterator,
        count: int | None = None,
        *,
        timeout: Time = 30.0,
    ) -> IteratorCommit:
        """Messages of a batch were worked off: all, or so many; of an iterator so many places of the log, or what was
        handed on of it. With the next iterator, if the partition stays the client's.

        NOT_OWNER when it is another client's, ITERATOR_SETTLED when it was committed or issued again since,
        NOTHING_HANDED when nothing was handed on of it.
        """
        iterator, places = _counted(batch, count)
        return await self._do(self._engine.commit(*_names(group, client_id), iterator, places, self._span_s(timeout)))


def _names(group: str, client_id: str) -> tuple[str, str]:
    """INVALID_GROUP_ID or INVALID_SETTING for what is no name."""
    check_text("group", group, 1, NAME_MAX, ErrorCode.INVALID_GROUP_ID)
    check_text("client_id", client_id, 1, NAME_MAX)
    return group, client_id


def _counted(batch: IteratorBatch | GroupIterator, count: int | None) -> tuple[GroupIterator, int]:
    check_kind("batch", batch, IteratorBatch, GroupIterator)
    if count is not None:
        check_number("count", count, 0, INT32_MAX)
    if isinstance(batch, IteratorBatch):
        return batch.iterator, batch.places(count)
    return batch, HANDED if count is None else count
