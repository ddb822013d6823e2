"""Coordinates all groups of this broker: routes their commands to shards, and keeps the catalog's tables up to date."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from millstream.catalog.cluster_image import ClusterDelta, ClusterImage
from millstream.catalog.projection import GroupTables
from millstream.coordination.coordinator import Coordinator, InternalTopic
from millstream.coordination.shard import Shard
from millstream.groups import commands
from millstream.groups.cluster_topics import ClusterTopics
from millstream.groups.commands import Command
from millstream.groups.effects import GroupNotice
from millstream.groups.failures import failed
from millstream.groups.group_configs import GroupConfigs
from millstream.groups.machine import GroupMachine
from millstream.groups.machine_context import MachineContext
from millstream.groups.member_memory import MemberBudget
from millstream.groups.responses import Answer, GroupList, ListedGroup
from millstream.groups.runtime.group_lag import LagReport
from millstream.groups.runtime.group_shard import GroupHooks, GroupShard, HandDown
from millstream.groups.runtime.projector import Projector
from millstream.groups.size_limits import RECORD_BYTES_MAX
from millstream.model.errors import ErrorCode
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey
from millstream.partition.leadership import Leadership
from millstream.partition.served.partitions import Partitions
from millstream.process.log_limiter import LogLimiter
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers

TOPIC = "__consumer_offsets"

_REFUSED_LOG_S = 60.0
_log = logging.getLogger(__name__)

TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(RECORD_BYTES_MAX),
    # A classic group is one record that contains all its members.
    "max.message.bytes": str(RECORD_BYTES_MAX),
}

GroupCommand = (
    commands.JoinGroup
    | commands.SyncGroup
    | commands.Heartbeat
    | commands.LeaveGroup
    | commands.CommitOffsets
    | commands.FetchOffsets
    | commands.DeleteOffsets
    | commands.DeleteGroup
    | commands.DescribeGroup
    | commands.ConsumerHeartbeat
    | commands.WatchMember
    | commands.DescribeConsumerGroup
    | commands.IteratorCommand
)
"""A command to one group."""


class CoordinatorStats(NamedTuple):
    """Figures for the operator. Counters start at 0 when the broker starts."""

    groups: int
    members: int
    loading: int
    """Number of partitions of the internal topic that are loading, so that their groups accept no commands yet."""
    rebalances: int
    offsets_committed: int
    member_bytes: int
    """An upper bound for the memory of the members' metadata and assignments."""


class GroupCoordinator(Coordinator[Command, Answer, GroupNotice]):
    """Coordinates the groups of `__consumer_offsets` and keeps the catalog's tables of groups.

    Started after the partitions have been opened, and stopped before they close.
    """

    def __init__(
        self,
        partitions: Partitions,
        configs: GroupConfigs,
        *,
        clock: Clock,
        workers: Workers,
        entropy: Entropy,
        tables: GroupTables,
        hand_down: HandDown,
    ) -> None:
        topic = InternalTopic(TOPIC, configs.broker.offsets_partitions, TOPIC_SETTINGS)
        super().__init__(topic, partitions, self._make_shard, failed)
        self._cluster = partitions.cluster
        self._find = partitions.get
        self._configs = configs
        self._clock = clock
        self._workers = workers
        self._entropy = entropy
        self._hand_down = hand_down
        self._budget = MemberBudget(configs.broker.memory_bytes, self._member_bytes, self._member_refused)
        self._limiter = LogLimiter(_REFUSED_LOG_S)
        self._topics = ClusterTopics(partitions.cluster)
        self._deleted: list[str] = []
        self._turn = asyncio.Lock()
        self._projector = Projector(tables, self._group_shards)

    async def start(self) -> None:
        """Loads the existing groups. A group accepts commands once its partition of the internal topic is loaded."""
        self._cluster.add_listener(self._topics_changed)
        topic = self._cluster.image.topic(TOPIC)
        ends: dict[PartitionKey, Offset | None] = {each.key: None for each in topic.placements} if topic else {}
        ends |= {each.key: Offset(each.log.end_offset) for each in self._partitions.of(TOPIC)}
        await self._projector.open(ends)
        await super().start()

    async def stop(self) -> None:
        """Answers every command. Nothing is written to the log after this."""
        if self._is_stopped:
            return
        self._cluster.remove_listener(self._topics_changed)
        await super().stop()
        await self._projector.stop()

    def figures(self) -> CoordinatorStats:
        shards = list(self._group_shards())
        loaded = [machine for shard in shards if (machine := shard.machine) is not None]
        return CoordinatorStats(
            groups=sum(len(machine.group_ids()) for machine in loaded),
            members=sum(machine.member_count for machine in loaded),
            loading=len(shards) - len(loaded),
            rebalances=sum(shard.hooks.rebalances for shard in shards),
            offsets_committed=sum(shard.hooks.offsets_committed for shard in shards),
            member_bytes=self._member_bytes(),
        )

    def lag_report(self) -> LagReport:
        """Begins a report on the lag of all loaded groups."""
        machines = [machine for shard in self._group_shards() if (machine := shard.machine) is not None]
        return LagReport(machines, self._find, self._clock.wall_ms())

    async def project(self) -> None:
        """Writes all changes to the catalog's tables now. Raises KAFKA_STORAGE_ERROR."""
        await self._projector.catch_up()

    async def list_groups(self, command: commands.ListGroups) -> GroupList:
        """Returns all loaded groups. If some groups are still loading, the result also contains an error."""
        groups: list[ListedGroup] = []
        error = ErrorCode.NONE
        for part in await self.request_all(command):
            assert isinstance(part, GroupList)
            groups += part.groups
            error = part.error if part.error is not ErrorCode.NONE else error
        return GroupList(tuple(groups), error)

    # Shards.

    def _group_shards(self) -> Iterator[GroupShard]:
        for shard in self.shards:
            assert isinstance(shard.hooks, GroupHooks), "made by this coordinator"
            yield GroupShard(shard, shard.hooks)

    def _make_shard(self, partition: Leadership) -> Shard[Command, Answer, GroupNotice]:
        hooks = GroupHooks(self._new_machine, self._hand_down, self._projector.projected_offset(partition.key))
        self._projector.start()
        return Shard(partition, hooks, clock=self._clock, workers=self._workers, turn=self._turn)

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(MachineContext(self._configs, self._topics, self._entropy, self._budget))

    def _member_bytes(self) -> int:
        return sum(shard.machine.member_bytes for shard in self._group_shards() if shard.machine is not None)

    def _member_refused(self) -> None:
        left_out = self._limiter.admit("refused", self._clock.monotonic_s())
        if left_out is not None:
            error = f"the members of all groups use group_memory_bytes ({self._configs.broker.memory_bytes})"
            _log.warning("group member refused", extra={"error": error, "times_since_last_log": left_out})

    def _topics_changed(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Reports deleted topics to the shards. Topics that are deleted in one turn of the event loop form one command.
        The groups detect other changes at the next heartbeat of a member."""
        if delta.deleted and not self._deleted:
            asyncio.get_running_loop().call_soon(self._tell_deleted)
        self._deleted += [topic.name for topic in delta.deleted]

    def _tell_deleted(self) -> None:
        deleted, self._deleted = self._deleted, []
        self.tell_all(commands.TopicsDeleted(tuple(deleted)))
