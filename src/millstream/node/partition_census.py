"""Counts the partitions of a broker and finds those with a problem, in one pass that runs in slices.

The pages of the operator port need these figures of every partition. With many partitions, one uninterrupted pass would
block the event loop for longer than a request takes.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica

SLICE = 250
"""Partitions that are counted before the event loop runs other work. This takes less than a millisecond."""

REFUSED_LATELY_S = 30.0
"""The time after its last failed write for which a partition counts as refusing writes.

A nearly full disk accepts small writes between large ones, so one successful write does not prove that it works.
"""


class CountedPartitions(Protocol):
    """Lists the partitions of a broker. Both lists are copies, so they may be walked while partitions change."""

    def all(self) -> Sequence[Leadership]: ...

    def replicas(self) -> Sequence[Replica]: ...


class PartitionCensus(NamedTuple):
    """The figures of all replicas. Partitions that change during the pass may be counted before or after the change."""

    replicas: int
    log_bytes: int
    log_messages: int
    refusing: Sequence[Leadership]
    """The partitions that refuse writes, or did so lately."""
    truncated: Sequence[Replica]
    """The replicas that may have lost acknowledged messages at this start: truncated, or without an end mark."""
    lacking_ids: Sequence[Replica]
    """The replicas that rebuild their message ids."""
    lost_ids: Sequence[Replica]
    """The replicas that have lost message ids since the start."""


async def take_census(partitions: CountedPartitions, now_s: float) -> PartitionCensus:
    """Counts all partitions. Other work of the event loop runs between slices."""
    log_bytes = log_messages = 0
    refusing: list[Leadership] = []
    truncated: list[Replica] = []
    lacking_ids: list[Replica] = []
    lost_ids: list[Replica] = []
    replicas = partitions.replicas()
    for start in range(0, len(replicas), SLICE):
        for replica in replicas[start : start + SLICE]:
            log = replica.log
            log_bytes += log.size_bytes
            log_messages += log.end_offset - log.start_offset
            if log.health.may_have_lost:
                truncated.append(replica)
            if replica.lacks_ids:
                lacking_ids.append(replica)
            if replica.ids_lost:
                lost_ids.append(replica)
        await asyncio.sleep(0)
    led = partitions.all()
    for start in range(0, len(led), SLICE):
        refusing += (each for each in led[start : start + SLICE] if is_refusing(each, now_s))
        await asyncio.sleep(0)
    return PartitionCensus(len(replicas), log_bytes, log_messages, refusing, truncated, lacking_ids, lost_ids)


def is_refusing(partition: Leadership, now_s: float) -> bool:
    """True if the partition refuses writes, or did so lately."""
    health = partition.log.health
    if health.broken is not None or health.quarantined is not None or partition.is_suspended:
        return True
    return health.refused_s is not None and now_s - health.refused_s < REFUSED_LATELY_S
