"""Divides offset ranges into tasks, and limits how much a batch reads. Pure functions.

A large range is split so that one partition does not delay the whole batch. Small ranges share a task, because starting
a task costs more than reading them. Sizes are estimates from a partition's bytes and offsets.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, pairwise
from typing import NamedTuple
from uuid import UUID

from millstream.model.names import TopicPartition

SPLIT_BYTES = 128 * 1024 * 1024
"""Default maximum size of one partition's range in a task."""
MERGE_BYTES = 4 * 1024 * 1024
"""Maximum total size of ranges that share a task."""


class Range(NamedTuple):
    """Offsets of a partition from `start` up to but excluding `end`; `size_bytes` is an estimate of their size."""

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int
    size_bytes: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        return self.end - self.start

    def cut(self, pieces: int) -> "list[Range]":
        """Returns the range in `pieces` parts with about the same number of offsets; at most one part per offset."""
        pieces = max(1, min(pieces, self.offsets))
        ends = [self.start + self.offsets * each // pieces for each in range(pieces + 1)]
        share_bytes = self.size_bytes // pieces
        return [self._replace(start=first, end=end, size_bytes=share_bytes) for first, end in pairwise(ends)]


def plan(ranges: Iterable[Range], tasks_min: int = 1, *, split_bytes: int = SPLIT_BYTES) -> list[list[Range]]:
    """Returns tasks that together read every range exactly once; a task has at most one range of a partition.

    There are at least `tasks_min` tasks, if there are enough offsets. Empty ranges produce no task. No task reads much
    more than `split_bytes` of one partition.
    """
    pieces = [piece for each in ranges if each.offsets > 0 for piece in each.cut(-(-each.size_bytes // split_bytes))]
    if len(pieces) < tasks_min:
        return [[piece] for piece in _halved(pieces, tasks_min)]
    return _parted(_merged(pieces), tasks_min)


def _merged(pieces: Sequence[Range]) -> list[list[Range]]:
    """Groups neighbouring small ranges of different partitions into tasks."""
    tasks: list[list[Range]] = []
    places: set[TopicPartition] = set()
    room_bytes = -1
    for piece in pieces:
        if piece.size_bytes <= room_bytes and piece.where not in places:
            tasks[-1].append(piece)
            room_bytes -= piece.size_bytes
        else:
            tasks.append([piece])
            places.clear()
            room_bytes = MERGE_BYTES - piece.size_bytes
        places.add(piece.where)
    return tasks


def _parted(tasks: Sequence[list[Range]], least: int) -> list[list[Range]]:
    """Splits the task with the most ranges into two, until there are `least` tasks. There must be that many ranges."""
    order = count()
    heap = [(-len(task), next(order), task) for task in tasks]
    heapq.heapify(heap)
    while len(heap) < least:
        _, _, most = heapq.heappop(heap)
        for half in (most[: len(most) // 2], most[len(most) // 2 :]):
            heapq.heappush(heap, (-len(half), next(order), half))
    return sorted((task for _, _, task in heap), key=lambda task: (task[0].where, task[0].start))


def _halved(pieces: Sequence[Range], least: int) -> list[Range]:
    """Splits the largest range into two, until there are `least` ranges or each has one offset."""
    order = count()
    heap = [(-piece.offsets, next(order), piece) for piece in pieces]
    heapq.heapify(heap)
    while heap and len(heap) < least and heap[0][2].offsets > 1:
        _, _, largest = heapq.heappop(heap)
        for half in largest.cut(2):
            heapq.heappush(heap, (-half.offsets, next(order), half))
    return sorted((piece for _, _, piece in heap), key=lambda piece: (piece.where, piece.start))


def admit(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    budget: float,
    cost: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Returns the end offsets of a batch that costs at most `budget`. `cost` is the cost of one offset.

    Every partition with unread messages gets one message, those with the largest backlog first. The rest of the budget
    is shared in proportion to the backlogs. The first partition gets its message even if the budget is too small. No
    end is smaller than its start.
    """
    rows = {where: max(0, end - starts[where]) for where, end in ends.items()}
    total = sum(rows[where] * cost[where] for where in rows)
    if total > budget:
        rows = _shared(rows, budget, total, cost)
    return {where: starts[where] + rows[where] for where in ends}


def _shared(
    rows: Mapping[TopicPartition, int], budget: float, total: float, cost: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    taken = dict.fromkeys(rows, 0)
    left = budget
    line = sorted((where for where in rows if rows[where]), key=lambda each: (-rows[each] * cost[each], each))
    for number, where in enumerate(line):
        if left >= cost[where] or number == 0:
            taken[where] = 1
            left -= cost[where]
    part = max(0.0, left) / total
    for where in line:
        taken[where] = min(rows[where], taken[where] + int(part * rows[where]))
    left = budget - sum(taken[where] * cost[where] for where in line)
    for where in line:  # Spend what rounding down left of the budget.
        more = min(rows[where] - taken[where], max(0, int(left / cost[where])))
        taken[where] += more
        left -= more * cost[where]
    return taken
