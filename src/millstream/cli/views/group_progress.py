"""Shows a group's progress per partition, and the effect of an offset reset. Pure functions over numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import GroupLag, GroupMember


class OffsetBounds(NamedTuple):
    """The first available offset of a partition, and the offset of its next message."""

    beginning: int
    end: int


class GroupProgress(NamedTuple):
    """A group's progress in one partition, and the member that reads it."""

    where: TopicPartition
    progress: GroupLag
    member: GroupMember | None


def with_members(lags: Mapping[TopicPartition, GroupLag], members: Iterable[GroupMember]) -> list[GroupProgress]:
    """Adds to each partition the member that reads it."""
    owners = {where: member for member in members for where in member.partitions}
    return [GroupProgress(where, lag, owners.get(where)) for where, lag in lags.items()]


def total_lag(rows: Iterable[GroupProgress]) -> int:
    return sum(row.progress.lag or 0 for row in rows)


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The effect of a reset on one partition. `before` is None if nothing was committed."""

    where: TopicPartition
    before: int | None
    after: int
    bounds: OffsetBounds

    @property
    def again(self) -> int:
        """Number of offsets that are read again."""
        if self.before is None:
            return 0
        return max(0, min(self.before, self.bounds.end) - max(self.after, self.bounds.beginning))

    @property
    def skipped(self) -> int:
        """Number of unread offsets that are skipped."""
        if self.before is None:
            return 0
        return max(0, min(self.after, self.bounds.end) - max(self.before, self.bounds.beginning))

    @property
    def effect(self) -> str:
        if self.before is None:
            return "begins there"
        if self.again:
            return f"{self.again} again"
        return f"{self.skipped} skipped" if self.skipped else "stays"


def clamped(offset: int, bounds: OffsetBounds) -> int:
    """Returns the offset within the bounds that is nearest to `offset`."""
    return max(bounds.beginning, min(offset, bounds.end))
