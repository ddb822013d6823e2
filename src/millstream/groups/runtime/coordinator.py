"""Who looks after which group: one shard for each partition of the internal topic, which is made when first needed.

A group belongs to the partition that Kafka would give it: the hash that Java has for its name, over the number of
partitions that the topic really has. So tools that work it out by themselves find it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from millstream.catalog.projection import GroupTables
from millstream.groups import commands
from millstream.groups.failures import failed
from millstream.groups.machine import GroupMachine
from millstream.groups.responses import Answer, GroupList, ListedGroup
from millstream.groups.runtime.projector import Projector
from millstream.groups.runtime.shard import HandDown, Hurry, Reply, Shard, nobody_waits
from millstream.groups.served_topics import ServedTopics
from millstream.groups.settings import GroupSettings
from millstream.groups.size_limits import RECORD_BYTES_MAX
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.served.partitions import Partitions
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy
from millstream.seams.workers import Workers

TOPIC = "__consumer_offsets"

TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(RECORD_BYTES_MAX),
    # A classic group is one record, with all its members: it must fit.
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
    | commands.DescribeConsumerGroup
    | commands.IteratorCommand
)
"""A question about one group."""

_log = logging.getLogger(__name__)


class CoordinatorStats(NamedTuple):
    """What an operator wants to know; the counters count from the start of the broker."""

    groups: int
    members: int
    loading: int
    """Partitions of the internal topic whose groups cannot be asked yet."""
    rebalances: int
    offsets_committed: int


class Coordinator:
    """Started when the partitions are open, stopped before they close."""

    def __init__(
        self,
        partitions: Partitions,
        settings: GroupSettings,
        *,
        clock: Clock,
        workers: Workers,
        entropy: Entropy,
        tables: GroupTables,
        hand_down: HandDown,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._workers = workers
        self._entropy = entropy
        self._hand_down = hand_down
        self._topics = ServedTopics(partitions)
        self._shards: list[Shard] = []
        self._making: asyncio.Task[None] | None = None
        self._asking: dict[asyncio.Task[None], None] = {}
        self._deleted: list[str] = []
        self._is_told = False
        self._is_closed = False
        self._projector = Projector(tables)
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Load the groups that are there; they can be asked when their part of the log was read."""
        self._partitions.on_change.append(self._topics_changed)
        await self._projector.start()
        if self._partitions.topic(TOPIC) is not None:
            await self._open_shards()

    async def stop(self) -> None:
        """Answer everybody; nothing is written to the log after this."""
        if self._is_closed:
            return
        self._is_closed = True
        self._partitions.on_change.remove(self._topics_changed)
        if self._making is not None:
            await asyncio.wait([self._making])
        for shard in self._shards:
            await shard.close()
        await self._projector.stop()

    # Figures for the operator.

    def figures(self) -> CoordinatorStats:
        loaded = [shard.machine for shard in self._shards if shard.machine is not None]
        return CoordinatorStats(
            groups=sum(len(machine.group_ids()) for machine in loaded),
            members=sum(machine.member_count for machine in loaded),
            loading=len(self._shards) - len(loaded),
            rebalances=sum(shard.rebalances for shard in self._shards),
            offsets_committed=sum(shard.offsets_committed for shard in self._shards),
        )

    async def project(self) -> None:
        """Bring the catalog's tables up to date now; raises KAFKA_STORAGE_ERROR."""
        await self._projector.catch_up()

    # Asking.

    async def ensure(self) -> None:
        """Make the internal topic, if it is not there: raises what `Partitions.create` raises, KAFKA_STORAGE_ERROR or
        POLICY_VIOLATION say. Many may ask at once, and one going away does not take it from the others."""
        while not self._shards:
            if self._is_closed:
                raise MillstreamError(ErrorCode.SHUTTING_DOWN)
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make())
                self._making.add_done_callback(self._made)
            await asyncio.shield(self._making)

    def ask(self, command: GroupCommand, reply: Reply) -> Hurry:
        """Put a question about a group; `reply` is called with the answer once, perhaps before this returns. The
        result is to be called when nobody will wait any longer."""
        shards = self._shards
        if self._is_closed:
            reply(failed(command, ErrorCode.NOT_COORDINATOR))
            return nobody_waits
        if shards:
            return shards[partition_of(command.group_id, len(shards))].ask(command, reply)
        first = _First()
        task = asyncio.get_running_loop().create_task(self._ask_first(command, reply, first))
        self._asking[task] = None
        task.add_done_callback(self._asking.pop)
        return first.hurry

    async def request(self, command: GroupCommand) -> Answer:
        """As `ask`, for who would rather wait."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask(command, partial(_fulfil, answer))
        return await answer

    async def list_groups(self, command: commands.ListGroups) -> GroupList:
        """All groups; with an error and those that are known when some are still being loaded."""
        groups: list[ListedGroup] = []
        error = ErrorCode.NONE
        for shard in list(self._shards):
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            shard.ask(command, partial(_fulfil, answer))
            part = await answer
            assert isinstance(part, GroupList)
            groups += part.groups
            error = part.error if part.error is not ErrorCode.NONE else error
        return GroupList(tuple(groups), error)

    async def _ask_first(self, command: GroupCommand, reply: Reply, first: "_First") -> None:
        """The first question of all waits for the topic to be made."""
        try:
            await self.ensure()
        except MillstreamError as error:
            reply(failed(command, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail))
        else:
            first.inner = self.ask(command, reply)

    # The topic.

    async def _make(self) -> None:
        try:
            await self._partitions.create(TOPIC, self._settings.offsets_partitions, TOPIC_SETTINGS, internal=True)
        except MillstreamError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        if self._is_closed:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN)
        await self._open_shards()

    def _made(self, making: "asyncio.Task[None]") -> None:
        self._making = None
        error = None if making.cancelled() else making.exception()
        if error is not None and not self._is_closed:
            _log.warning("the topic of groups could not be made", extra={"why": str(error)})

    async def _open_shards(self) -> None:
        shards = [
            Shard(
                partition,
                self._machine,
                clock=self._clock,
                workers=self._workers,
                turn=self._turn,
                hand_down=self._hand_down,
            )
            for partition in self._partitions.of(TOPIC)
        ]
        await self._projector.adopt(shards)
        self._shards = shards

    def _machine(self) -> GroupMachine:
        return GroupMachine(self._settings, self._topics, self._entropy)

    # Topics that come and go.

    def _topics_changed(self, deleted: Sequence[str]) -> None:
        """Several changes of one turn of the event loop are told as one. Of other topics, groups take note when a
        member is heard of."""
        self._deleted += deleted
        if deleted and not self._is_told:
            self._is_told = True
            asyncio.get_running_loop().call_soon(self._tell_shards)

    def _tell_shards(self) -> None:
        self._is_told = False
        deleted, self._deleted = self._deleted, []
        for shard in self._shards:
            shard.topics_deleted(deleted)


class _First:
    """How a question is hurried that may not have been put yet."""

    def __init__(self) -> None:
        self.inner: Hurry | None = None

    def hurry(self) -> None:
        if self.inner is not None:
            self.inner()


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of the internal topic that holds a group."""
    return _java_hash(group_id) % partitions


@lru_cache(maxsize=10_000)
def _java_hash(text: str) -> int:
    """What `Math.abs(text.hashCode())` gives in Java, 0 for the one number that has no absolute value."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFF_FFFF
    if value == 0x8000_0000:
        return 0
    return value if value < 0x8000_0000 else 0x1_0000_0000 - value


def _fulfil(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
