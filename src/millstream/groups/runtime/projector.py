"""Keeps the catalog's tables of groups up to date, about a second behind the log.

About once a second, or less often under many changes, the projector reads the changed groups and offsets from the
state, in slices, and writes them in one transaction. It writes these changes only after the state that it read is
durable in the log. So the tables may lack the latest changes, but never contain a change that a crash could undo.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from millstream.catalog.projection import GroupRow, GroupTables, MemberRow, OffsetPlace, OffsetRow, ShardRows
from millstream.coordination.effects import NO_TOKEN, Effects, Now
from millstream.groups.assignment_records import assigned_partitions
from millstream.groups.commands import Command, DescribeConsumerGroup, DescribeGroup
from millstream.groups.effects import GroupEffects
from millstream.groups.machine import GroupMachine
from millstream.groups.records import CONSUMERS, read_offset_key
from millstream.groups.responses import Answer, AssignedTopic, ConsumerGroupDescription, GroupDescription
from millstream.groups.runtime.changed_groups import Changed
from millstream.groups.runtime.group_shard import GroupShard
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.model.names import PartitionKey

PERIOD_S = 1.0
PERIOD_S_PER_CHANGE = 0.003
"""Minimum pause per change that was written, so that writing takes only a small share of the broker's time."""

RETRY_S = 10.0
AT_ONCE_MAX = 5_000
"""Maximum number of changes in one transaction; the others wait for the next one."""

SLICE = 200
"""Number of rows that are read before other work runs."""

_NO_TIME = Now(0, 0)

_log = logging.getLogger(__name__)


class Projector:
    """Writes changes from `start` to `stop`."""

    def __init__(self, tables: GroupTables, shards: Callable[[], Iterable[GroupShard]]) -> None:
        """`shards` returns the shards that run on this broker now."""
        self._tables = tables
        self._shards = shards
        self._projected: dict[PartitionKey, Offset] = {}
        self._writing: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()

    async def open(self, end_offsets: Mapping[PartitionKey, Offset | None]) -> None:
        """Reads how far the tables have followed each log, and clears them if a log ends earlier. Raises
        KAFKA_STORAGE_ERROR.

        `end_offsets` has every partition of the internal topic; None if another broker leads the partition.
        """
        self._projected = await self._tables.projected()
        for key, offset in self._projected.items():
            end_offset = end_offsets.get(key, Offset(-1))
            if end_offset is None or offset <= end_offset:
                continue
            _log.warning("group tables rebuilt", extra={"projected_offset": offset, "end_offset": end_offset})
            await self._tables.clear()
            self._projected = {}
            return

    def projected_offset(self, key: PartitionKey) -> Offset:
        """Returns the offset up to which the tables had followed a partition's log when they were opened."""
        return self._projected.get(key, Offset(0))

    def start(self) -> None:
        """Starts to write periodically. Does nothing if it has already started."""
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_from_time_to_time())

    async def stop(self) -> None:
        """Stops writing. The next start writes the changes that are missing."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def catch_up(self) -> int:
        """Writes all changes so far, and returns their number. Raises KAFKA_STORAGE_ERROR."""
        changes = 0
        while written := await self._write_once():
            changes += written
        return changes

    async def _write_from_time_to_time(self) -> None:
        wait_s = PERIOD_S
        while True:
            await asyncio.sleep(wait_s)
            try:
                wait_s = max(PERIOD_S, await self.catch_up() * PERIOD_S_PER_CHANGE)
            except MillstreamError as error:
                _log.warning("group tables not updated", extra={"error": str(error)})
                await asyncio.sleep(RETRY_S)

    async def _write_once(self) -> int:
        """Writes one transaction of changes, and returns their number."""
        async with self._alone:
            room = AT_ONCE_MAX
            gathered: list[tuple[GroupShard, Changed, ShardRows]] = []
            try:
                for shard in list(self._shards()):
                    if room > 0 and shard.hooks.changes and shard.machine is not None:
                        changed = shard.hooks.changes.take(room)
                        room -= len(changed.groups) + len(changed.offsets)
                        rows = ShardRows(shard.shard.partition.key, changed.offset)
                        gathered.append((shard, changed, rows))
                        await _look_up(shard, changed, rows)
                if not gathered:
                    return 0
                await self._tables.project([rows for _, _, rows in gathered])
            except BaseException:
                for shard, changed, _ in gathered:
                    shard.hooks.changes.put_back(changed)
                raise
        for shard, changed, _ in gathered:
            shard.hooks.changes.projected(changed)
        return AT_ONCE_MAX - room


async def _look_up(shard: GroupShard, changed: Changed, rows: ShardRows) -> None:
    """Fills the rows from the state. Raises KAFKA_STORAGE_ERROR if the machine was discarded meanwhile."""
    incarnation = shard.shard.incarnation
    for first in range(0, len(changed.groups), SLICE):
        machine = _machine_of(shard, incarnation)
        for name in changed.groups[first : first + SLICE]:
            group_id = name.decode(errors="replace")
            rows.groups[group_id] = _group_row(machine, group_id)
        await asyncio.sleep(0)
    for first in range(0, len(changed.offsets), SLICE):
        machine = _machine_of(shard, incarnation)
        for key in changed.offsets[first : first + SLICE]:
            place = read_offset_key(key)
            committed = machine.committed(place)
            rows.offsets[OffsetPlace(*place)] = OffsetRow(*committed) if committed is not None else None
        await asyncio.sleep(0)
    await shard.shard.settled()
    _machine_of(shard, incarnation)


def _machine_of(shard: GroupShard, incarnation: int) -> GroupMachine:
    machine = shard.machine
    if machine is None or shard.shard.incarnation != incarnation:
        raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the state of groups is being reloaded")
    return machine


def _ask(machine: GroupMachine, command: Command) -> Answer:
    """Executes a command that only reads, and returns its answer."""
    effects: GroupEffects = Effects()
    machine.handle(command, NO_TOKEN, _NO_TIME, effects)
    return effects.replies[0][1]


def _group_row(machine: GroupMachine, group_id: str) -> GroupRow | None:
    consumers = _ask(machine, DescribeConsumerGroup(group_id))
    if isinstance(consumers, ConsumerGroupDescription) and consumers.error is ErrorCode.NONE:
        members = tuple(
            MemberRow(each.member_id, each.instance_id, each.client_id, each.client_host, _by_topic(each.assignment))
            for each in consumers.members
        )
        return GroupRow("consumer", consumers.state, CONSUMERS, consumers.assignor, consumers.group_epoch, members)
    classic = _ask(machine, DescribeGroup(group_id))
    if not isinstance(classic, GroupDescription) or classic.error is not ErrorCode.NONE or classic.state == "Dead":
        return None
    members = tuple(
        MemberRow(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.assignment) if classic.protocol_type == CONSUMERS else None,
        )
        for each in classic.members
    )
    return GroupRow("classic", classic.state, classic.protocol_type, classic.protocol, classic.generation, members)


def _by_topic(assignment: Sequence[AssignedTopic]) -> Mapping[str, Sequence[int]]:
    return {each.topic: each.partitions for each in assignment}
