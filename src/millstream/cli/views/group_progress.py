"""How far a group is, and what moving it would mean; numbers in, rows out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.model.names import TopicPartition
from millstream.sdk.admin.group_results import CommittedOffset, GroupMember


class OffsetBounds(NamedTuple):
    """Where a partition's messages begin, and where the next one will be."""

    beginning: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """One partition of a group. `bounds` is None for one that is gone or damaged, `committed` where nothing is."""

    where: TopicPartition
    committed: CommittedOffset | None
    bounds: OffsetBounds | None
    member: GroupMember | None
    is_damaged: bool = False

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be read; None where that is not known."""
        if self.committed is None or self.bounds is None:
            return None
        return max(0, self.bounds.end - max(self.committed.offset, self.bounds.beginning))


def progress(
    committed: Mapping[TopicPartition, CommittedOffset],
    members: Iterable[GroupMember],
    bounds: Mapping[TopicPartition, OffsetBounds | None],
) -> list[GroupProgress]:
    """A row for each partition that is committed or owned, in order; bounds are None of one that is damaged."""
    owners = {where: member for member in members for where in member.partitions}
    places = sorted(committed.keys() | owners.keys())
    return [
        GroupProgress(
            where,
            committed.get(where),
            bounds.get(where),
            owners.get(where),
            is_damaged=where in bounds and bounds[where] is None,
        )
        for where in places
    ]


def total_lag(rows: Iterable[GroupProgress]) -> int:
    return sum(row.lag or 0 for row in rows)


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """What a reset does to one partition; `before` is None where nothing was committed."""

    where: TopicPartition
    before: int | None
    after: int
    bounds: OffsetBounds

    @property
    def again(self) -> int:
        """How many offsets are read once more."""
        if self.before is None:
            return 0
        return max(0, min(self.before, self.bounds.end) - max(self.after, self.bounds.beginning))

    @property
    def skipped(self) -> int:
        """How many offsets are not read that would have been."""
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
    """The nearest place there is."""
    return max(bounds.beginning, min(offset, bounds.end))
