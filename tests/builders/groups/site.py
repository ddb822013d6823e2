"""Groups over real partitions, on a disk in memory and in simulated time; what stays when a broker ends stays here."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, TypeVar

from builders.partitions import NODE_ID
from millstream.catalog.memory import MemoryCatalog
from millstream.groups.commands import (
    AssignedBytes,
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    OfferedProtocol,
    OffsetToCommit,
    SyncGroup,
)
from millstream.groups.iterators.iterator import IteratorNotice
from millstream.groups.responses import (
    Answer,
    CommittedOffset,
    JoinResponse,
    OffsetsResponse,
    PartitionErrors,
    SyncResponse,
)
from millstream.groups.runtime.coordinator import TOPIC, Coordinator, GroupCommand, partition_of
from millstream.groups.runtime.shard import Hurry
from millstream.groups.settings import GroupSettings
from millstream.model.errors import ErrorCode
from millstream.partition.partition import Partition
from millstream.partition.served.partitions import Partitions
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.disk import SimulatedDisk
from millstream.testing.simulated.entropy import SimulatedEntropy
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.workers import SimulatedWorkers

A = TypeVar("A", bound=Answer)

GROUP = "readers"
EVENTS = "events"


class GroupSite:
    def __init__(self, loop: SimulatedLoop, seed: int, settings: dict[str, Any], policy: FlushPolicy) -> None:
        self.loop = loop
        self.random = Random(seed)
        self.settings = GroupSettings(**({"initial_rebalance_delay_ms": 0, "offsets_partitions": 4} | settings))
        self.policy = policy
        self.clock = SimulatedClock(loop)
        self.entropy = SimulatedEntropy(Random(seed + 1))
        self.catalog = MemoryCatalog(self.clock, self.entropy)
        self.disk = SimulatedDisk(Random(seed + 2))
        self.told: list[IteratorNotice] = []
        self.store: LogStore | None = None
        self._partitions: Partitions | None = None
        self._groups: Coordinator | None = None

    @property
    def partitions(self) -> Partitions:
        assert self._partitions is not None
        return self._partitions

    @property
    def groups(self) -> Coordinator:
        assert self._groups is not None
        return self._groups

    async def start(self) -> "GroupSite":
        workers = SimulatedWorkers(self.loop, self.random)
        self.store = await LogStore.open(
            ["/data"],
            disk=self.disk,
            clock=self.clock,
            workers=workers,
            flush_workers=SimulatedWorkers(self.loop, self.random, count=2),
            policy=self.policy,
            entropy=self.entropy,
        )
        self._partitions = Partitions(
            self.catalog, self.store, clock=self.clock, workers=workers, node_id=NODE_ID, upkeep_s=5
        )
        await self._partitions.open()
        self._groups = Coordinator(
            self._partitions,
            self.settings,
            clock=self.clock,
            workers=workers,
            entropy=self.entropy,
            tables=self.catalog.group_tables,
            hand_down=self.told.append,
        )
        await self._groups.start()
        return self

    async def stop(self) -> None:
        groups, self._groups = self._groups, None
        partitions, self._partitions = self._partitions, None
        store, self.store = self.store, None
        if groups is not None:
            await groups.stop()
        if partitions is not None:
            await partitions.close()
        if store is not None:
            await store.close()

    async def crash(self, *, power_loss: bool = True) -> None:
        """End the broker as the plug would: the disk stays as it is at this moment."""
        kept = copy.deepcopy(self.disk)
        kept.locks.clear()
        if power_loss:
            kept.power_loss(self.random)
        await self.stop()
        self.disk = kept

    async def restart(self, *, crashed: bool = False) -> None:
        await (self.crash() if crashed else self.stop())
        await self.start()
        await self.loaded()

    async def loaded(self) -> None:
        """Wait until all groups can be asked."""
        while self.groups.figures().loading:  # noqa: ASYNC110  # the broker sets no event for tests
            await asyncio.sleep(0.01)

    def partition(self, group_id: str = GROUP) -> Partition:
        """The partition of the internal topic that holds a group."""
        of_topic = self.partitions.of(TOPIC)
        return of_topic[partition_of(group_id, len(of_topic))]

    async def ask(self, command: GroupCommand, kind: type[A]) -> A:
        answer = await self.groups.request(command)
        assert isinstance(answer, kind)
        return answer

    def put(self, command: GroupCommand) -> "Waiting":
        """A question whose answer may take a while."""
        return Waiting(self.groups, command)

    async def commit(self, offset: int, *, group_id: str = GROUP, partition: int = 0, **options: Any) -> ErrorCode:
        command = commit(offset, group_id=group_id, partition=partition, **options)
        answer = await self.ask(command, PartitionErrors)
        return answer.error

    async def committed(self, group_id: str = GROUP) -> dict[int, int]:
        """The offsets a group has in EVENTS, by partition."""
        answer = await self.ask(FetchOffsets(group_id, None), OffsetsResponse)
        assert answer.error is ErrorCode.NONE
        return {number: found.offset for (_, number), found in answer.offsets.items()}

    async def committed_whole(self, group_id: str = GROUP, partition: int = 0) -> CommittedOffset:
        answer = await self.ask(FetchOffsets(group_id, ((EVENTS, partition),)), OffsetsResponse)
        return answer.offsets[EVENTS, partition]


class Waiting:
    """A question under way."""

    def __init__(self, groups: Coordinator, command: GroupCommand) -> None:
        self.answers: list[Answer] = []
        self._news = asyncio.Event()
        self.hurry: Hurry = groups.ask(command, self._reply)

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
    offsets = tuple(OffsetToCommit(EVENTS, number, offset, 0, metadata) for number in places)
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
    """Somebody who has joined a group alone and shared out its work."""
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
    """Run a story from a broker's first start, and end whatever is left of it."""
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
