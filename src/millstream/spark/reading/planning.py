"""From ranges of offsets to tasks, and how much a batch takes: pure functions.

A large range is split, so that one partition does not keep the others' tasks waiting; small ones share a task, since
starting one costs more than reading them. Sizes are estimates, from a partition's bytes and offsets.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, pairwise
from typing import NamedTuple
from uuid import UUID

from millstream.model.names import TopicPartition

SPLIT_BYTES = 128 * 1024 * 1024
"""As much of one partition is for one task, unless told otherwise."""
MERGE_BYTES = 4 * 1024 * 1024
"""Ranges share a task as long as they are smaller together."""


class Range(NamedTuple):
    """Offsets of a partition from `start` on, before `end`; `size_bytes` is about what they take."""

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
        """In so many pieces of about the same number of offsets; at most one for each offset."""
        pieces = max(1, min(pieces, self.offsets))
        ends = [self.start + self.offsets * each // pieces for each in range(pieces + 1)]
        share_bytes = self.size_bytes // pieces
        return [self._replace(start=first, end=end, size_bytes=share_bytes) for first, end in pairwise(ends)]


def plan(ranges: Iterable[Range], tasks_min: int = 1, split_bytes: int = SPLIT_BYTES) -> list[list[Range]]:
    """Tasks that together read every range once; a task has at most one range of a partition.

    They are at least `tasks_min`, as long as there are so many offsets. Empty ranges make no task. No task reads much
    more than `split_bytes` of one partition.
    """
    pieces = [piece for each in ranges if each.offsets > 0 for piece in each.cut(-(-each.size_bytes // split_bytes))]
    if len(pieces) < tasks_min:
        return [[piece] for piece in _halved(pieces, tasks_min)]
    return _parted(_merged(pieces), tasks_min)


def _merged(pieces: Sequence[Range]) -> list[list[Range]]:
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
    """The task with the most ranges is cut into two until there are enough; so many ranges there are."""
    order = count()
    heap = [(-len(task), next(order), task) for task in tasks]
    heapq.heapify(heap)
    while len(heap) < least:
        _, _, most = heapq.heappop(heap)
        for half in (most[: len(most) // 2], most[len(most) // 2 :]):
            heapq.heappush(heap, (-len(half), next(order), half))
    return sorted((task for _, _, task in heap), key=lambda task: (task[0].where, task[0].start))


def _halved(pieces: Sequence[Range], least: int) -> list[Range]:
    """The largest is cut into two until there are enough."""
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
    """The ends of a batch that costs at most `budget`; where it is too small for anything, one message is taken.

    Who has messages waiting gets one, those with the most first, and then a share as large as its part of all that is
    waiting. `cost` is that of one offset. No end lies before its start.
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
    for where in line:  # What rounding left over.
        more = min(rows[where] - taken[where], max(0, int(left / cost[where])))
        taken[where] += more
        left -= more * cost[where]
    return taken
