"""Runs groups over real partitions, on a disk in memory and in simulated time, across restarts of the broker."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from builders.coordination.simulated_site import SimulatedSite
from millstream.coordination.key_hash import partition_of
from millstream.groups.commands import (
    AssignedBytes,
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    OfferedProtocol,
    OffsetToCommit,
    SyncGroup,
)
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.responses import (
    Answer,
    CommittedOffset,
    JoinResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.groups.runtime.coordinator import TOPIC, GroupCommand, GroupCoordinator
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.waiters import Cancel
from millstream.partition.leadership import Leadership
from millstream.seams.workers import Workers
from millstream.storage.store import FlushPolicy
from millstream.testing.simulated.loop import SimulatedLoop

A = TypeVar("A", bound=Answer)

GROUP = "readers"
EVENTS = "events"


class GroupSite(SimulatedSite):
    def __init__(self, loop: SimulatedLoop, seed: int, settings: dict[str, Any], policy: FlushPolicy) -> None:
        super().__init__(loop, seed, policy)
        self.settings = GroupSettings(**({"initial_rebalance_delay_ms": 0, "offsets_partitions": 4} | settings))
        self.told: list[IteratorNotice] = []
        self._groups: GroupCoordinator | None = None

    @property
    def groups(self) -> GroupCoordinator:
        assert self._groups is not None
        return self._groups

    async def begin(self, workers: Workers) -> None:
        configs = GroupConfigs(self.settings, self.catalog)
        await configs.load()
        self._groups = GroupCoordinator(
            self.partitions,
            configs,
            clock=self.clock,
            workers=workers,
            entropy=self.entropy,
            tables=self.catalog.group_tables,
            hand_down=self.told.append,
        )
        await self._groups.start()

    async def end(self) -> None:
        groups, self._groups = self._groups, None
        if groups is not None:
            await groups.stop()

    async def loaded(self) -> None:
        """Wait until the groups of all shards are loaded."""
        while self.groups.figures().loading:  # noqa: ASYNC110  # the broker sets no event for tests
            await asyncio.sleep(0.01)

    def partition(self, group_id: str = GROUP) -> Leadership:
        """Return the partition of the internal topic that stores a group."""
        of_topic = self.partitions.of(TOPIC)
        return of_topic[partition_of(group_id, len(of_topic))]

    async def ask(self, command: GroupCommand, kind: type[A]) -> A:
        answer = await self.groups.request(command.group_id, command)
        assert isinstance(answer, kind)
        return answer

    def put(self, command: GroupCommand) -> "Waiting":
        """Send a command whose answer may take a while."""
        return Waiting(self.groups, command)

    async def commit(self, offset: int, *, group_id: str = GROUP, partition: int = 0, **options: Any) -> ErrorCode:
        command = commit(offset, group_id=group_id, partition=partition, **options)
        answer = await self.ask(command, PartitionErrors)
        return answer.error

    async def committed(self, group_id: str = GROUP) -> dict[int, int]:
        """Return a group's committed offsets of the topic EVENTS, by partition."""
        answer = await self.ask(FetchOffsets(group_id, None), OffsetsResponse)
        assert answer.error is ErrorCode.NONE
        return {number: found.offset for (_, number), found in answer.offsets.items()}

    async def committed_whole(self, group_id: str = GROUP, partition: int = 0) -> CommittedOffset:
        answer = await self.ask(FetchOffsets(group_id, ((EVENTS, partition),)), OffsetsResponse)
        return answer.offsets[EVENTS, partition]


class Waiting:
    """A command in flight."""

    def __init__(self, groups: GroupCoordinator, command: GroupCommand) -> None:
        self.answers: list[Answer] = []
        self._news = asyncio.Event()
        self.cancel: Cancel = groups.ask(command.group_id, command, self._reply)

    def _reply(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._news.set()

    async def answer(self, kind: type[A]) -> A:
        await self._news.wait()
        (answer,) = self.answers
        assert isinstance(answer, kind)
        return answer


def commit(
    offset: int,
    *,
    group_id: str = GROUP,
    partition: int = 0,
    metadata: str = "",
    generation: int = -1,
    member_id: str = "",
    partitions: Sequence[int] | None = None,
) -> CommitOffsets:
    places = [partition] if partitions is None else partitions
    offsets = tuple(OffsetToCommit(EVENTS, number, Offset(offset), LeaderEpoch(0), metadata) for number in places)
    return CommitOffsets(group_id, generation, member_id, None, offsets)


def join(member_id: str = "", *, group_id: str = GROUP, instance_id: str | None = None) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="/host",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(OfferedProtocol("range", b"metadata"),),
        knows_member_id_required=False,
        can_skip_assignment=False,
    )


async def settled_member(site: GroupSite, group_id: str = GROUP) -> JoinResponse:
    """Join a group as its only member, and complete the assignment."""
    joined = await site.ask(join(group_id=group_id), JoinResponse)
    assert joined.error is ErrorCode.NONE
    everything = (AssignedBytes(joined.member_id, b"everything"),)
    sync = SyncGroup(group_id, joined.generation, joined.member_id, None, "consumer", "range", everything)
    synced = await site.ask(sync, SyncResponse)
    assert synced == SyncResponse(ErrorCode.NONE, "consumer", "range", b"everything")
    return joined


def run_groups(
    story: Callable[[GroupSite], Awaitable[None]],
    *,
    seed: int = 1,
    policy: FlushPolicy = FlushPolicy.ALWAYS,
    **settings: Any,
) -> None:
    """Run a story with a broker, and stop everything at the end."""
    loop = SimulatedLoop()
    site = GroupSite(loop, seed, settings, policy)

    async def whole() -> None:
        await site.start()
        await site.partitions.create(EVENTS, 4)
        await story(site)
        site.disk.flush_error_chance = site.disk.write_error_chance = 0.0
        await site.stop()

    try:
        loop.run_until_complete(whole())
        assert loop.failures == []
    finally:
        loop.end()
