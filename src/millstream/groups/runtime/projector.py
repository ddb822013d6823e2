"""Keeps the catalog's tables of groups a moment behind the log.

About once a second, or more rarely where much changes, the changed groups and offsets are looked up in the state, in
slices, and written in one transaction. They are written only when what was looked up is durable in the log, so the
tables may lack the last moment, but never tell of what will not have happened.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from millstream.catalog.projection import GroupRow, GroupTables, MemberRow, OffsetPlace, OffsetRow, ShardRows
from millstream.groups.assignment_records import assigned_partitions
from millstream.groups.commands import Command, DescribeConsumerGroup, DescribeGroup
from millstream.groups.effects import Now
from millstream.groups.machine import GroupMachine
from millstream.groups.records import CONSUMERS, read_offset_key
from millstream.groups.responses import Answer, AssignedTopic, ConsumerGroupDescription, GroupDescription
from millstream.groups.runtime.changed_groups import Changed
from millstream.groups.runtime.shard import Shard
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import PartitionKey

PERIOD_S = 1.0
PERIOD_S_PER_CHANGE = 0.003
"""The more is written at a time the more rarely that happens, so that it takes a small share of the broker at most."""

RETRY_S = 10.0
AT_ONCE_MAX = 5_000
"""So many changes go into one transaction; the rest waits for the next."""

SLICE = 200
"""So many are looked up before others get their turn."""

_NOBODY = -1
_NO_TIME = Now(0, 0)

_log = logging.getLogger(__name__)


class Projector:
    """Writes whenever something has changed, from `start` to `stop`."""

    def __init__(self, tables: GroupTables) -> None:
        self._tables = tables
        self._shards: list[Shard] = []
        self._projected: dict[PartitionKey, int] = {}
        self._writing: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()

    async def start(self) -> None:
        """Learn how far the tables are; raises KAFKA_STORAGE_ERROR."""
        self._projected = await self._tables.projected()

    async def adopt(self, shards: Sequence[Shard]) -> None:
        """Open the shards, each with what the tables know of it, and look after them from now on."""
        known = {shard.partition.key: shard.partition.log.end_offset for shard in shards}
        if any(offset > known.get(key, -1) for key, offset in self._projected.items()):
            _log.warning("the tables of groups tell of another log and are made anew")
            await self._tables.clear()
            self._projected = {}
        for shard in shards:
            shard.open(self._projected.get(shard.partition.key, 0))
        self._shards = list(shards)
        self._writing = asyncio.get_running_loop().create_task(self._write_from_time_to_time())

    async def stop(self) -> None:
        """Write no more; what is missing is written by the next start."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def catch_up(self) -> int:
        """Write everything that has changed so far; how many changes that were. Raises KAFKA_STORAGE_ERROR."""
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
                _log.warning("the tables of groups could not be written", extra={"why": str(error)})
                await asyncio.sleep(RETRY_S)

    async def _write_once(self) -> int:
        """Write as many changes as go at once, and tell how many those are."""
        async with self._alone:
            room = AT_ONCE_MAX
            gathered: list[tuple[Shard, Changed, ShardRows]] = []
            try:
                for shard in self._shards:
                    if room > 0 and shard.changes and shard.machine is not None:
                        changed = shard.changes.take(room)
                        room -= len(changed.groups) + len(changed.offsets)
                        rows = ShardRows(shard.partition.key, changed.offset)
                        gathered.append((shard, changed, rows))
                        await _look_up(shard, changed, rows)
                if not gathered:
                    return 0
                await self._tables.project([rows for _, _, rows in gathered])
            except BaseException:
                for shard, changed, _ in gathered:
                    shard.changes.put_back(changed)
                raise
        for shard, changed, _ in gathered:
            shard.changes.projected_offset = changed.offset
        return AT_ONCE_MAX - room


async def _look_up(shard: Shard, changed: Changed, rows: ShardRows) -> None:
    """Fill the rows from the state; KAFKA_STORAGE_ERROR when that state has turned out not to be the log's."""
    life = shard.life
    for first in range(0, len(changed.groups), SLICE):
        machine = _machine_of(shard, life)
        for name in changed.groups[first : first + SLICE]:
            group_id = name.decode(errors="replace")
            rows.groups[group_id] = _group_row(machine, group_id)
        await asyncio.sleep(0)
    for first in range(0, len(changed.offsets), SLICE):
        machine = _machine_of(shard, life)
        for key in changed.offsets[first : first + SLICE]:
            place = read_offset_key(key)
            committed = machine.committed(place)
            rows.offsets[OffsetPlace(*place)] = OffsetRow(*committed) if committed is not None else None
        await asyncio.sleep(0)
    await shard.settled()
    _machine_of(shard, life)


def _machine_of(shard: Shard, life: int) -> GroupMachine:
    if shard.machine is None or shard.life != life:
        raise MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "the state of groups is being loaded anew")
    return shard.machine


def _ask(machine: GroupMachine, command: Command) -> Answer:
    """Questions that change nothing are answered at once."""
    return machine.handle(command, _NOBODY, _NO_TIME).replies[0][1]


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
