"""Finds the partitions with the most written bytes, and topics that get most of their bytes in one partition.

Maintenance takes a sample in each round: the bytes that each partition got since the last one. A metric with a label
set for each of thousands of partitions would be too large, so only the busiest ones are published.

Invariant: `busiest` has at most `BUSIEST_MAX` partitions.
"""

import asyncio
from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import NamedTuple

from millstream.partition.leadership import Leadership
from millstream.seams.clock import Clock

BUSIEST_MAX = 50
HOT_PARTITIONS_MIN = 4
HOT_BYTES_PER_S_MIN = 1_000_000
HOT_SHARE = 0.5
_SLICE = 250


class HotPartition(NamedTuple):
    """A partition that got more than `HOT_SHARE` of the bytes of its topic during the last sample."""

    topic: str
    number: int
    share: float
    topic_bytes_per_s: float
    topic_partitions: int


class _TopicLoad:
    """The bytes that a topic got during a sample."""

    __slots__ = ("largest", "largest_number", "partitions", "total")

    def __init__(self) -> None:
        self.partitions = self.total = self.largest = self.largest_number = 0

    def add(self, number: int, *, size_bytes: int) -> None:
        self.partitions += 1
        self.total += size_bytes
        if size_bytes > self.largest:
            self.largest, self.largest_number = size_bytes, number


class BusyPartitions:
    """The results of the last sample."""

    def __init__(self, clock: Clock) -> None:
        self.busiest: Sequence[Leadership] = ()
        """The partitions with the most bytes during the last sample, and of equal ones those with the most in all."""
        self.hot: Sequence[HotPartition] = ()
        """Hot partitions of busy topics, the busiest topic first."""
        self._clock = clock
        self._sampled_s = clock.monotonic_s()
        self._before: dict[Leadership, int] = {}

    async def sample(self, partitions: Sequence[Leadership]) -> None:
        """Take a sample in slices. Without time since the last one, the last one stays."""
        now_s = self._clock.monotonic_s()
        elapsed_s = now_s - self._sampled_s
        if elapsed_s <= 0:
            return
        before, after = self._before, dict[Leadership, int]()
        busiest: list[tuple[int, int, int, Leadership]] = []
        topics: dict[str, _TopicLoad] = {}
        for count, partition in enumerate(partitions):
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            total = after[partition] = partition.produced_bytes
            size_bytes = total - before.get(partition, 0)
            topics.setdefault(partition.topic, _TopicLoad()).add(partition.number, size_bytes=size_bytes)
            if total:
                push = heappush if len(busiest) < BUSIEST_MAX else heappushpop
                push(busiest, (size_bytes, total, -count, partition))
        assert len(busiest) <= BUSIEST_MAX, "only the busiest partitions are published"
        self.busiest = [partition for *_, partition in sorted(busiest, reverse=True)]
        self.hot = _hot(topics, elapsed_s)
        self._before, self._sampled_s = after, now_s


def _hot(topics: dict[str, _TopicLoad], elapsed_s: float) -> Sequence[HotPartition]:
    found = [
        HotPartition(topic, load.largest_number, load.largest / load.total, load.total / elapsed_s, load.partitions)
        for topic, load in topics.items()
        if load.partitions >= HOT_PARTITIONS_MIN
        and load.total >= HOT_BYTES_PER_S_MIN * elapsed_s
        and load.largest > HOT_SHARE * load.total
    ]
    return sorted(found, key=lambda hot: -hot.topic_bytes_per_s)
