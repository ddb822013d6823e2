"""Lets clients consume in a group by naming only the group and the consumer; shared by the web API and gRPC.

A consumer reads with iterators. All of its state is with the group coordinator, so each request may go to another
gateway. The gateway records a delivery there (DeliverIterator) before the messages leave it. Guarantees:

- Messages that were delivered and not committed are delivered again, the same ones, until they are committed or the
  partition moves to another consumer. A poll whose answer was lost loses nothing, and two concurrent polls get the same
  messages.
- A commit covers exactly the last delivery.
- Each request keeps the consumer in its group, and a waiting poll sends heartbeats.
- A poll makes a bounded number of broker requests, however many partitions the consumer owns: it delivers from at most
  PARTITIONS_MAX partitions and checks all others with one request.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.gateway.failures import invalid, missing
from millstream.gateway.operations.cluster_consumer import ClusterConsumer
from millstream.gateway.operations.clusters import ClusterMember, ServedCluster
from millstream.gateway.operations.poll_assignment import AssignedPartition, PollAssignment
from millstream.gateway.operations.reads import ReadLimits, group_start
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.start_words import BEGINNING, GROUP_START, LATEST
from millstream.records.message import Message
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.iterating.engine import UNSETTLED_S
from millstream.sdk.iterating.requests import GroupIterator, IteratorMembership, ListedIterator
from millstream.sdk.watching.read_result import ReadResult, size_of

PARTITIONS_MAX = 16
"""Most partitions in one answer. Further partitions with messages take turns."""

SETUP_PARTITIONS_MAX = 64
"""Most partitions that one poll releases to the group, and most whose start offset one poll commits at the log end.

The remaining partitions follow with the next poll.
"""

REREAD_BYTES = 64 * 1024 * 1024
"""Most bytes of one partition that are delivered again. A gateway delivers far less, but other clients may deliver
more.
"""

_REBALANCE_PAUSE_S = 0.05
"""Pause before a retry while the group rebalances."""


class PollResult(NamedTuple):
    """Messages in offset order within each partition, and the offset per partition at which the group continues after a
    commit.

    `assigned` are the consumer's partitions with their lag; empty if it owns none, None if the poll did not find out.
    """

    messages: list[Message]
    positions: dict[TopicPartition, int]
    assigned: tuple[AssignedPartition, ...] | None = None


NOTHING = PollResult([], {})


class _Share(NamedTuple):
    """Messages of one partition to deliver, and the offset that follows them."""

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
    start: str = GROUP_START,
) -> PollResult:
    """Return the next messages of the consumer's partitions, or its last delivery if that is not committed yet.

    With `auto_commit` the last delivery is committed first. `start` sets where the group begins without a committed
    offset. The result has no messages if none arrived within the wait, or if the consumer owned no partition until
    then. Raises UNKNOWN_TOPIC_OR_PARTITION for an unknown topic, INVALID_REQUEST for contradictory arguments.
    """
    word = group_start(start, "start")
    if not topics:
        raise missing("topic", "name a topic to read")
    homes = {await cluster.home(topic) for topic in topics}
    if len(homes) > 1:
        raise invalid("topic", "these topics are on different brokers; poll them one at a time")
    return await _Poll(ClusterConsumer(homes.pop(), group, consumer), topics, limits, word).run(auto_commit=auto_commit)


async def commit(cluster: ServedCluster, group: str, consumer: str) -> dict[TopicPartition, int]:
    """Commit the consumer's last delivery. Returns the committed offset per partition.

    Partitions that moved to another consumer are left out. The result is empty if everything was committed before.
    Raises UNKNOWN_MEMBER_ID if the consumer left the group or its session expired.
    """

    async def done(member: ClusterMember) -> dict[TopicPartition, int]:
        one = ClusterConsumer(member, group, consumer)
        _, listed = await asyncio.gather(one.heartbeat(), one.in_flight())
        commits = await one.commit_delivered(each for each in listed if each.delivered)
        return {where: done.position for where, done in commits.items()}

    found: dict[TopicPartition, int] = {}
    for each in await cluster.wherever_known(done):
        found |= each
    return found


class _Poll:
    """Runs one poll. Its view of the group may be outdated; each call to the coordinator detects that."""

    def __init__(self, consumer: ClusterConsumer, topics: Sequence[str], limits: ReadLimits, start: str) -> None:
        self._consumer = consumer
        self._client = consumer.client
        self._topics = topics
        self._limits = limits
        self._start = start
        self._until = Deadline(limits.wait_s)
        self._assignment = PollAssignment(topics)
        self._iterators: dict[TopicPartition, GroupIterator] = {}
        """Iterators in flight of which nothing was delivered."""

    async def run(self, *, auto_commit: bool) -> PollResult:
        polled = await self._poll(auto_commit=auto_commit)
        return polled._replace(assigned=self._assignment.rows)

    async def _poll(self, *, auto_commit: bool) -> PollResult:
        membership, listed = await asyncio.gather(self._consumer.join(), self._consumer.in_flight())
        self._assignment.assigned(membership.owned)
        listed = [each for each in listed if each.where.topic in self._topics]
        delivered = [each for each in listed if each.delivered]
        if delivered and not auto_commit:
            polled = await self._redeliver(delivered[:PARTITIONS_MAX])
            if polled.messages:
                return polled
        await self._commit_and_release(membership, listed)
        return await self._poll_new(membership)

    # Earlier deliveries.

    async def _redeliver(self, delivered: Sequence[ListedIterator]) -> PollResult:
        """Deliver the same messages again.

        The result is empty if the log has removed all of them, or if their partitions moved to another consumer.
        """
        polled = _merge(await asyncio.gather(*map(self._reread, delivered)))
        answer = self._limits.answer
        if answer is not None and answer.count(polled.messages) < len(polled.messages):
            text = (
                "the consumer's last delivery does not fit into one response in this format; use that delivery's format"
            )
            raise MillstreamError(ErrorCode.RESPONSE_TOO_LARGE, text)
        return polled

    async def _reread(self, entry: ListedIterator) -> _Share | None:
        where, end = entry.where, entry.offset + entry.delivered
        messages, at, left_bytes = list[Message](), entry.offset, REREAD_BYTES
        while at < end and left_bytes > 0:
            portion = await self._read_there(where, at, count=end - at, size_bytes=left_bytes)
            more = [each for each in portion.messages if each.offset < end]
            messages += more
            at = portion.next_offset if len(more) == len(portion.messages) > 0 else end
            left_bytes -= sum(map(size_of, more))
            self._assignment.read(where, min(at, end), end=portion.high_watermark)
        share = _Share(where, messages, min(at, end))
        if entry.left_s > 0 and share.end == end:
            return share
        # The iterator expired, or the delivery exceeds one answer: record the delivery again.
        return await self._deliver(share, entry.offset) if messages else None

    async def _read_there(self, where: TopicPartition, offset: int, *, count: int, size_bytes: int) -> ReadResult:
        async def read(place: int | str) -> ReadResult:
            return await self._client.read(
                *where,
                place,
                max_messages=count,
                max_bytes=size_bytes,
                on_bad_batch=self._limits.on_bad_batch,
                timeout=self._consumer.timeout_s,
            )

        try:
            return await read(offset)
        except MillstreamError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await read(BEGINNING)

    async def _commit_and_release(self, membership: IteratorMembership, listed: Sequence[ListedIterator]) -> None:
        """Commit earlier deliveries and release the iterators of partitions that move to another consumer."""
        committed = await self._consumer.commit_delivered(each for each in listed if each.delivered)
        self._iterators = {where: done.following for where, done in committed.items() if done.following is not None}
        unused = {each.where: each.iterator for each in listed if each.iterator is not None and not each.delivered}
        lost = sorted(unused.keys() - set(membership.owned))[:SETUP_PARTITIONS_MAX]
        self._iterators |= unused
        await asyncio.gather(*(self._consumer.commit(self._iterators.pop(where), 0) for where in lost))

    # New messages.

    async def _poll_new(self, membership: IteratorMembership) -> PollResult:
        """Read until there are messages or the wait is over."""
        is_reader = False
        while True:
            owned = [where for where in membership.owned if where.topic in self._topics]
            lacking = set(self._topics) - {where.topic for where in owned}
            if lacking and not is_reader:
                await asyncio.gather(*map(self._become_reader, lacking))
                is_reader = True
            else:
                is_over = self._until.is_over
                polled = await self._read(owned, min(self._until.left_s, _heartbeat_interval_s(membership)))
                if polled.messages or is_over:
                    return polled
            membership = await self._consumer.join()
            self._assignment.assigned(membership.owned)

    async def _become_reader(self, topic: str) -> None:
        """Request the first iterator of a topic, which makes the group rebalance with this consumer as a reader."""
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
        shares = (
            self._deliver(_Share(where, each.messages, each.next_offset), positions[where]) for where, each in rows
        )
        polled = _merge(await asyncio.gather(*shares))
        for where, end in polled.positions.items():
            self._assignment.read(where, end, end=found[where].high_watermark)
        if not polled.messages:
            await asyncio.sleep(_REBALANCE_PAUSE_S)  # The group rebalances, or a concurrent request got the messages.
        return polled

    async def _read_any(self, positions: dict[TopicPartition, int], wait_s: float) -> dict[TopicPartition, ReadResult]:
        """Read the partitions that have messages now or get some within the wait.

        Positions before the log start are moved to it, and `positions` is updated.
        """
        while True:
            try:
                found = await self._client.read_any(
                    positions,
                    max_messages=self._limits.max_messages,
                    max_bytes=self._limits.max_bytes,
                    on_bad_batch=self._limits.on_bad_batch,
                    wait=wait_s,
                    timeout=self._consumer.timeout_s,
                )
                for where, portion in found.items():
                    position = positions[where] if portion.messages else portion.next_offset
                    self._assignment.read(where, position, end=portion.high_watermark)
                found = dict(self._limits.cut(found))
                return {where: portion for where, portion in found.items() if portion.messages}
            except MillstreamError as error:
                first = await self._beginnings(positions) if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else {}
                overtaken = {where: offset for where, offset in first.items() if offset > positions[where]}
                if not overtaken:
                    raise
                positions |= overtaken

    async def _deliver(self, share: _Share, offset: int) -> _Share | None:
        """Record the delivery of a share that begins at `offset`.

        Returns None if the consumer no longer owns the partition.
        """
        where = share.where
        iterator = self._iterators.pop(where, None) or await self._consumer.get(where, self._start)
        iterator = iterator and await self._consumer.placed(iterator, offset)
        if iterator is None:
            return None
        end = offset + iterator.max_messages
        if share.end > end:
            share = _Share(where, [each for each in share.messages if each.offset < end], end)
        if not share.messages:
            await self._consumer.commit(iterator, share.end - offset)  # Only offsets of removed messages.
            return None
        return share if await self._consumer.deliver(iterator, share.end - offset) else None

    # Positions of the group.

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
            found |= await (
                self._beginnings(new) if self._start == BEGINNING else self._ends(new[:SETUP_PARTITIONS_MAX])
            )
        return found

    async def _beginnings(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._client.offsets(dict.fromkeys(places, BEGINNING), timeout=self._consumer.timeout_s)
        return {where: listed.offset for where, listed in found.items()}

    async def _ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Commit the current end as the group's start offset. The log end moves later, but the start must not."""
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


def _merge(shares: Iterable[_Share | None]) -> PollResult:
    given = [share for share in shares if share is not None]
    return PollResult([each for share in given for each in share.messages], {share.where: share.end for share in given})


def _heartbeat_interval_s(membership: IteratorMembership) -> float:
    return membership.heartbeat_s if membership.is_settled else UNSETTLED_S
