"""Simulates a group: members on the real SDK that read, commit, crash and return, and a watcher outside the group.

These guarantees must hold despite all faults of the broker. An acknowledged commit is on stable storage at that moment,
and its offset never decreases. A partition belongs to one member at a time. In the end the group has read every
acknowledged message, except those that a member received just before it crashed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.aio.consumer import AsyncConsumer
from millstream.sdk.consuming.message_batch import MessageBatch
from millstream.sdk.requests import LATEST
from millstream.sdk.wire_client import WireClient
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.testing.simulation.history import WriteOutcome
from millstream.testing.simulation.plan import MemberPlan
from millstream.testing.simulation.workload import HistoryRecorder

GROUP = "group"
_POLL_S = 0.5
_PAUSE_S = 0.3
_WATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedCommit:
    """One acknowledged commit."""

    partition: TopicPartition
    offset: int
    told_at: int


@dataclass(slots=True)
class GroupRecord:
    """The commits and reads of one group, and the problems that were found."""

    topics: tuple[str, ...]
    is_durable: Callable[[bytes], bool]
    """Returns True if these bytes are on stable storage."""
    commits: list[SimulatedCommit] = field(default_factory=list)
    read: dict[bytes, None] = field(default_factory=dict)
    """Values that a member received without crashing."""
    problems: list[str] = field(default_factory=list)
    is_over: bool = False
    """True when the members leave and no new ones join."""

    def committed(self, asked_at: int, told: Mapping[TopicPartition, int]) -> None:
        """Check that the reported offsets include all commits that were acknowledged before the request."""
        highest: dict[TopicPartition, int] = {}
        for commit in self.commits:
            if commit.told_at < asked_at:
                highest[commit.partition] = max(commit.offset, highest.get(commit.partition, -1))
        for partition, offset in highest.items():
            found = told.get(partition, -1)
            if found < offset:
                self.problems.append(
                    f"COMMIT LOST in {partition}: offset {offset} was acknowledged, {found} is committed"
                )


class SimulatedMember:
    """A series of members under one name. Each stays for a while, then leaves or crashes."""

    def __init__(
        self,
        plan: MemberPlan,
        record: GroupRecord,
        book: HistoryRecorder,
        network: SimulatedNetwork,
        make_client: Callable[[str], WireClient],
        random: Random,
    ) -> None:
        self._plan = plan
        self._record = record
        self._book = book
        self._network = network
        self._make_client = make_client
        self._random = random
        self._joins = 0

    async def run(self) -> None:
        """Run one member after another until the group is over."""
        while not self._record.is_over:
            self._joins += 1
            host = f"{self._plan.name}.{self._joins}"
            client = self._make_client(host)
            consumer = group_consumer(client, self._record)
            try:
                await self._live(host, consumer)
            except MillstreamError as error:
                self._book.note("member failed", host, error.code.name)
            await consumer.close()
            client.close()
            await asyncio.sleep(_PAUSE_S * self._random.random())

    async def _live(self, host: str, consumer: AsyncConsumer) -> None:
        await consumer.start()
        for _ in range(self._random.randint(5, 50)):
            batch = await consumer.poll_batch(_POLL_S)
            if self._record.is_over:
                return
            if batch is None:
                continue
            if self._random.random() < self._plan.crash_chance:
                self._crash(host)
                return
            note_read(batch, self._record)
            if self._random.random() < self._plan.commit_chance:
                await commit_read(consumer, self._record, self._book)

    def _crash(self, host: str) -> None:
        """Crash the process, whose connections break, or its machine, which becomes silent."""
        self._book.note("member crashed", host)
        if self._random.random() < 0.5:
            self._network.block(host)
        else:
            self._network.cut(host)
            self._network.refuse(host)


class Watcher:
    """Checks from outside the group which member owns what, and what is committed."""

    def __init__(self, client: WireClient, record: GroupRecord, book: HistoryRecorder) -> None:
        self._client = client
        self._record = record
        self._book = book

    async def run(self) -> None:
        """Check periodically until the group is over."""
        while not self._record.is_over:
            await asyncio.sleep(_WATCH_S)
            try:
                await self.look()
            except MillstreamError as error:
                self._book.note("watching failed", error.code.name)

    async def look(self) -> None:
        asked_at = self._book.history.tick()
        told = await self._client.groups.offsets(GROUP)
        self._record.committed(asked_at, {partition: found.offset for partition, found in told.items()})
        described = await self._client.groups.describe(GROUP)
        owners: dict[TopicPartition, str] = {}
        for member in described.members:
            for partition in member.partitions:
                if partition in owners:
                    both = f"{owners[partition]} and {member.member_id}"
                    self._record.problems.append(f"GIVEN TWICE: {partition} to {both} in epoch {described.epoch}")
                owners[partition] = member.member_id
        self._book.note("watched", described.state, described.epoch, len(described.members), len(told))


async def read_to_the_end(
    client: WireClient, record: GroupRecord, book: HistoryRecorder, partitions: Sequence[TopicPartition]
) -> None:
    """Read and commit the rest with one last member. Raise the SDK's error if that fails."""
    ends = {partition: await client.list_offset(*partition, LATEST) for partition in partitions}
    wanted = {partition: end.offset for partition, end in ends.items() if end is not None}
    async with group_consumer(client, record) as consumer:
        while any((consumer.position(*where) or 0) < end for where, end in wanted.items()):
            batch = await consumer.poll_batch(_POLL_S)
            if batch is not None:
                note_read(batch, record)
        await commit_read(consumer, record, book)
    for write in book.history.writes:
        if write.outcome is WriteOutcome.STORED and write.partition in wanted:
            record.problems += [
                f"NEVER READ in {write.partition}: offset {write.base_offset + at} was acknowledged to {write.producer}"
                for at, value in enumerate(write.values)
                if value not in record.read
            ]


def group_consumer(client: WireClient, record: GroupRecord) -> AsyncConsumer:
    """Create a consumer without auto-commit."""
    return client.consumer(record.topics, group=GROUP, start="beginning", auto_commit=None)


def note_read(batch: MessageBatch, record: GroupRecord) -> None:
    record.read.update((each.value, None) for each in batch.messages if each.value is not None)


async def commit_read(consumer: AsyncConsumer, record: GroupRecord, book: HistoryRecorder) -> None:
    """Commit what the member has received. After an error, the commit may be stored or not."""
    positions = {where: consumer.position(*where) for where in consumer.assignment}
    offsets = {where: offset for where, offset in positions.items() if offset is not None}
    if not offsets:
        return
    mark = f"commit at {book.history.tick()}."
    try:
        await consumer.commit(offsets, metadata=mark)
    except MillstreamError as error:
        book.note("commit failed", error.code.name)
        return
    if not record.is_durable(mark.encode()):
        record.problems.append(f"COMMIT NOT DURABLE: {mark} was acknowledged before it was on stable storage")
    told_at = book.history.tick()
    record.commits += [SimulatedCommit(partition, offset, told_at) for partition, offset in offsets.items()]
    book.note("committed", *(f"{partition}:{offset}" for partition, offset in offsets.items()))
