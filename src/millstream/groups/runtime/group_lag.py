"""Computes how far the committed offsets of consumer groups are behind the ends of their partitions.

The end of a partition is its high watermark on this broker. Partitions that another broker leads are left out: their
leader does not have the groups, and this broker does not know their ends. A commit age is the time since the last
commit of a group.

A report is computed in steps, so that many groups do not block the event loop. Groups that change meanwhile are
reported before or after the change.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from millstream.groups.machine import GroupMachine
from millstream.groups.responses import CommittedOffset
from millstream.partition.leadership import Leadership

SERIES_MAX = 10_000
"""Maximum number of partitions with their own lag. The lag of others is added up per group."""

PartitionFinder = Callable[[str, int], Leadership | None]


class ReportedLag(NamedTuple):
    """The number of messages after a group's committed offset. Topic and partition are empty in a sum."""

    group_id: str
    topic: str
    partition: str
    lag: int


class CommitAge(NamedTuple):
    group_id: str
    age_ms: int


class LagReport:
    """One report on all loaded groups. `lags` must be exhausted before `ages` is complete."""

    def __init__(
        self, machines: Sequence[GroupMachine], find: PartitionFinder, now_ms: int, *, series_max: int = SERIES_MAX
    ) -> None:
        """`find` returns the leadership of a partition if this broker leads it."""
        self.ages: list[CommitAge] = []
        """The ages of groups that have members or lag, and have committed."""
        self._machines = machines
        self._find = find
        self._now_ms = now_ms
        self._left = series_max

    def lags(self) -> Iterator[ReportedLag | None]:
        """Yield the lag of each group and partition. Each offset and each group is one step; some steps yield None."""
        for machine in self._machines:
            for group_id in list(machine.group_ids()):
                yield from self._of_group(machine, group_id)
                yield None

    def _of_group(self, machine: GroupMachine, group_id: str) -> Iterator[ReportedLag | None]:
        total = summed = 0
        has_sum = False
        committed_ms: int | None = None
        for topic, offsets in machine.offsets.by_topic(group_id):
            for partition, committed in offsets:
                committed_ms = max(committed_ms or 0, committed.committed_ms)
                lag = self._lag(topic, partition, committed)
                if lag is None:
                    yield None
                    continue
                total += lag
                if self._left > 0:
                    self._left -= 1
                    yield ReportedLag(group_id, topic, str(partition), lag)
                else:
                    has_sum = True
                    summed += lag
                    yield None
        if has_sum:
            yield ReportedLag(group_id, "", "", summed)
        if committed_ms is not None and (total or machine.has_members(group_id)):
            self.ages.append(CommitAge(group_id, max(self._now_ms - committed_ms, 0)))

    def _lag(self, topic: str, partition: int, committed: CommittedOffset) -> int | None:
        leadership = self._find(topic, partition)
        return None if leadership is None else max(leadership.high_watermark - committed.offset, 0)
