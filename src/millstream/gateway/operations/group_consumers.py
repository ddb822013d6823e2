"""Consumers of a group, by the names of group and consumer alone: what the web API and gRPC offer alike.

A consumer is a client of iterators whose whole state is with the group's coordinator, so that each of its requests may
come to another gateway. What it is handed is noted there before it leaves (DeliverIterator). Invariants:

- What was handed out and not committed is handed out again, the same messages, until it is committed or the partition
  is another consumer's. So a poll whose answer was lost loses nothing, and two at once are handed the same.
- A commit covers what was handed out last, and nothing else.
- Each request keeps the consumer in its group; while a poll waits, it is heard of too.
- A poll asks the brokers a bounded number of things, however many partitions the consumer has: those that it is handed
  something of are few (`PARTITIONS_MAX`), and about all others it asks at once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.gateway.failures import invalid
from millstream.gateway.operations.cluster_consumer import ClusterConsumer
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.gateway.operations.reads import BEGINNING, LATEST, ReadLimits
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.message import Message
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.iterating.engine import UNSETTLED_S
from millstream.sdk.iterating.requests import GroupIterator, IteratorMembership, ListedIterator
from millstream.sdk.watching.read_result import ReadResult, size_of

PARTITIONS_MAX = 16
"""Of so many partitions a consumer is handed something at a time; in turn, where more have something."""

PLACES_MAX = 64
"""So many partitions a poll gives back to the group, and of so many it settles where the group begins, when that is
their end; others follow with the next."""

REREAD_BYTES = 64 * 1024 * 1024
"""So much of a partition is handed out again at most; what a gateway hands out is far less, but others may as well."""

_AGAIN_S = 0.05
"""Between two looks at a group that is changing hands."""


class PollResult(NamedTuple):
    """Messages, in the order of their offsets within each partition; and where the group goes on when they are
    committed."""

    messages: list[Message]
    positions: dict[TopicPartition, int]


NOTHING = PollResult([], {})


class _Share(NamedTuple):
    """Messages of one partition that are handed out, and the place behind them."""

    where: TopicPartition
    messages: list[Message]
    end: int


async def poll(
    cluster: ServedCluster,
    topics: Sequence[str],
    group: str,
    consumer: str,
    limits: ReadLimits,
    *,
    auto_commit: bool = False,
    start: str = BEGINNING,
) -> PollResult:
    """The next messages of what is the consumer's, or those that it was handed last if it has not committed them.

    With `auto_commit` these are committed first. `start` says where the group begins where it has committed nothing.
    There are no messages when none have come in time, or when nothing was the consumer's until then.
    UNKNOWN_TOPIC_OR_PARTITION when there is no such topic, INVALID_REQUEST for what makes no sense.
    """
    if start not in (BEGINNING, LATEST):
        raise invalid("start", f"{start!r} is no place to begin; expected {BEGINNING} or {LATEST}")
    if not topics:
        raise invalid("topic", "name one to be read")
    homes = {await cluster.home(topic) for topic in topics}
    if len(homes) > 1:
        raise invalid("topic", "these topics are not together on one broker; ask for one at a time")
    return await _Poll(ClusterConsumer(homes.pop(), group, consumer), topics, limits, start).run(
        auto_commit=auto_commit
    )


async def commit(cluster: ServedCluster, group: str, consumer: str) -> dict[TopicPartition, int]:
    """Commit what the consumer was handed last: where the group goes on, in these partitions.

    Those are left out, of which another consumer has taken over what was handed out; there are none when all was
    committed before. UNKNOWN_MEMBER_ID when the consumer has left, or was not heard of for too long.
    """

    async def done(member: ClusterMember) -> dict[TopicPartition, int]:
        one = ClusterConsumer(member, group, consumer)
        _, listed = await asyncio.gather(one.heartbeat(), one.in_flight())
        commits = await one.commit_handed(each for each in listed if each.handed)
        return {where: done.position for where, done in commits.items()}

    found: dict[TopicPartition, int] = {}
    for each in await cluster.wherever_known(done):
        found |= each
    return found


class _Poll:
    """One poll. What it knows of the group it was told a moment ago; what has changed since it is told when it acts."""

    def __init__(self, consumer: ClusterConsumer, topics: Sequence[str], limits: ReadLimits, start: str) -> None:
        self._consumer = consumer
        self._client = consumer.client
        self._topics = topics
        self._limits = limits
        self._start = start
        self._until = Deadline(limits.wait_s)
        self._iterators: dict[TopicPartition, GroupIterator] = {}
        """In flight, and nothing was handed out of them."""

    async def run(self, *, auto_commit: bool) -> PollResult:
        membership, listed = await asyncio.gather(self._consumer.join(), self._consumer.in_flight())
        listed = [each for each in listed if each.where.topic in self._topics]
        handed = [each for each in listed if each.handed]
        if handed and not auto_commit:
            polled = await self._hand_again(handed[:PARTITIONS_MAX])
            if polled.messages:
                return polled
        await self._settle(membership, listed)
        return await self._look(membership)

    # What was handed out before.

    async def _hand_again(self, handed: Sequence[ListedIterator]) -> PollResult:
        """The same messages once more; none where all of them are gone from the log, or another consumer's."""
        return _together(await asyncio.gather(*map(self._reread, handed)))

    async def _reread(self, handed: ListedIterator) -> _Share | None:
        where, end = handed.where, handed.offset + handed.handed
        messages, at, left_bytes = list[Message](), handed.offset, REREAD_BYTES
        while at < end and left_bytes > 0:
            portion = await self._read_there(where, at, end - at, left_bytes)
            more = [each for each in portion.messages if each.offset < end]
            messages += more
            at = portion.next_offset if len(more) == len(portion.messages) > 0 else end
            left_bytes -= sum(map(size_of, more))
        share = _Share(where, messages, min(at, end))
        if handed.left_s > 0 and share.end == end:
            return share
        # Its time is over, or it was more than fits into an answer: noted anew.
        return await self._hand(share, handed.offset) if messages else None

    async def _read_there(self, where: TopicPartition, offset: int, count: int, size_bytes: int) -> ReadResult:
        async def read(place: int | str) -> ReadResult:
            return await self._client.read(
                *where, place, max_messages=count, max_bytes=size_bytes, timeout=self._consumer.timeout_s
            )

        try:
            return await read(offset)
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await read(BEGINNING)

    async def _settle(self, membership: IteratorMembership, listed: Sequence[ListedIterator]) -> None:
        """Commit what was handed out, and give back what is to be another's; the rest is there to be read."""
        handed = await self._consumer.commit_handed(each for each in listed if each.handed)
        self._iterators = {where: done.following for where, done in handed.items() if done.following is not None}
        unused = {each.where: each.iterator for each in listed if each.iterator is not None and not each.handed}
        lost = sorted(unused.keys() - set(membership.owned))[:PLACES_MAX]
        self._iterators |= unused
        await asyncio.gather(*(self._consumer.commit(self._iterators.pop(where), 0) for where in lost))

    # What is new.

    async def _look(self, membership: IteratorMembership) -> PollResult:
        """Until there is something, or the wait is over."""
        is_reader = False
        while True:
            owned = [where for where in membership.owned if where.topic in self._topics]
            lacking = set(self._topics) - {where.topic for where in owned}
            if lacking and not is_reader:
                await asyncio.gather(*map(self._become_reader, lacking))
                is_reader = True
            else:
                is_over = self._until.is_over
                polled = await self._read(owned, min(self._until.left_s, _beat_s(membership)))
                if polled.messages or is_over:
                    return polled
            membership = await self._consumer.join()

    async def _become_reader(self, topic: str) -> None:
        """The first iterator that is asked for of a topic has the group share it out anew."""
        where = TopicPartition(topic, 0)
        iterator = await self._consumer.get(where, self._start)
        if iterator is not None:
            self._iterators[where] = iterator

    async def _read(self, owned: Sequence[TopicPartition], wait_s: float) -> PollResult:
        positions = await self._positions(owned) if owned else {}
        if not positions:
            await asyncio.sleep(wait_s)
            return NOTHING
        found = await self._read_any(positions, wait_s)
        if not found:
            return NOTHING
        rows = list(found.items())[:PARTITIONS_MAX]
        shares = (self._hand(_Share(where, each.messages, each.next_offset), positions[where]) for where, each in rows)
        polled = _together(await asyncio.gather(*shares))
        if not polled.messages:
            await asyncio.sleep(_AGAIN_S)  # Partitions are changing hands, or another request was faster.
        return polled

    async def _read_any(self, positions: dict[TopicPartition, int], wait_s: float) -> dict[TopicPartition, ReadResult]:
        """Of partitions that have messages, or get some within the wait. Those that no longer go back so far are read
        from their beginning, and `positions` then says so."""
        while True:
            try:
                found = await self._client.read_any(
                    positions,
                    max_messages=self._limits.max_messages,
                    max_bytes=self._limits.max_bytes,
                    wait=wait_s,
                    timeout=self._consumer.timeout_s,
                )
                return {where: portion for where, portion in found.items() if portion.messages}
            except MillstreamError as error:
                first = await self._beginnings(positions) if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else {}
                overtaken = {where: offset for where, offset in first.items() if offset > positions[where]}
                if not overtaken:
                    raise
                positions |= overtaken

    async def _hand(self, share: _Share, offset: int) -> _Share | None:
        """Note that the share, which begins at `offset`, is handed out; None if that is not the consumer's to have."""
        where = share.where
        iterator = self._iterators.pop(where, None) or await self._consumer.get(where, self._start)
        iterator = iterator and await self._consumer.placed(iterator, offset)
        if iterator is None:
            return None
        end = offset + iterator.max_messages
        if share.end > end:
            share = _Share(where, [each for each in share.messages if each.offset < end], end)
        if not share.messages:
            await self._consumer.commit(iterator, share.end - offset)  # Places of removed messages only.
            return None
        return share if await self._consumer.deliver(iterator, share.end - offset) else None

    # Where the group is.

    async def _positions(self, owned: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        known = {where: self._iterators[where].offset for where in owned if where in self._iterators}
        found = {where: offset for where, offset in known.items() if offset >= 0}
        unknown = [where for where in owned if where not in found]
        if unknown:
            committed = await self._client.groups.offsets(
                self._consumer.group, unknown, timeout=self._consumer.timeout_s
            )
            found |= {where: row.offset for where, row in committed.items()}
        new = [where for where in unknown if where not in found]
        if new:
            found |= await (self._beginnings(new) if self._start == BEGINNING else self._ends(new[:PLACES_MAX]))
        return found

    async def _beginnings(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._client.offsets(dict.fromkeys(places, BEGINNING), timeout=self._consumer.timeout_s)
        return {where: listed.offset for where, listed in found.items()}

    async def _ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Have the group begin at the end, from now on: the end moves, but where the group begins must not."""
        found = zip(places, await asyncio.gather(*map(self._begin_at_end, places)), strict=True)
        return {where: offset for where, offset in found if offset is not None}

    async def _begin_at_end(self, where: TopicPartition) -> int | None:
        iterator = self._iterators.pop(where, None) or await self._consumer.get(where, LATEST)
        iterator = iterator and await self._consumer.placed(iterator)
        done = iterator and await self._consumer.commit(iterator, 0)
        if done is None:
            return None
        if done.following is not None:
            self._iterators[where] = done.following
        return done.position


def _together(shares: Iterable[_Share | None]) -> PollResult:
    given = [share for share in shares if share is not None]
    return PollResult([each for share in given for each in share.messages], {share.where: share.end for share in given})


def _beat_s(membership: IteratorMembership) -> float:
    return membership.heartbeat_s if membership.is_settled else UNSETTLED_S
