"""Tests that samples find the busiest partitions, and the partitions with most of the bytes of a busy topic."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from builders.batches import batch
from builders.partitions import Site, committed
from millstream.node.data_findings import hot_partitions
from millstream.node.data_metrics import busy_partition_metrics, hot_partition_metrics
from millstream.partition.served.busy_partitions import BUSIEST_MAX, BusyPartitions
from millstream.process.metrics import render
from millstream.testing.simulated.clock import ManualClock

MB = 1_000_000


@dataclass(eq=False)
class Loaded:
    """A partition that has received some bytes."""

    topic: str
    number: int
    produced_bytes: int = 0
    is_closed: bool = False


class Sampled:
    """Partitions whose load is sampled every ten seconds."""

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock()
        self.busy = BusyPartitions(self.clock)
        self.partitions = [Loaded(topic, number) for topic, count in topics.items() for number in range(count)]

    def add(self, *sizes: int) -> "Sampled":
        """Write this many bytes to the partitions, in their order."""
        for partition, size_bytes in zip(self.partitions, sizes, strict=False):
            partition.produced_bytes += size_bytes
        return self

    def sample(self, seconds: int = 10) -> "Sampled":
        self.clock.advance_ms(1_000 * seconds)
        partitions: Any = self.partitions
        asyncio.run(self.busy.sample(partitions))
        return self

    @property
    def busiest(self) -> list[tuple[int, int]]:
        return [(partition.number, partition.produced_bytes) for partition in self.busy.busiest]


def test_the_busiest_partitions_of_the_last_sample_come_first() -> None:
    sampled = Sampled(orders=5).add(50, 10, 30, 0, 1).sample()
    assert sampled.busiest == [(0, 50), (2, 30), (1, 10), (4, 1)]
    assert sampled.add(0, 100, 5).sample().busiest == [(1, 110), (2, 35), (0, 50), (4, 1)]


def test_a_bounded_number_of_partitions_is_published() -> None:
    sampled = Sampled(orders=1_000).add(*range(1, 1_001)).sample()
    assert sampled.busiest == [(number, number + 1) for number in range(999, 999 - BUSIEST_MAX, -1)]


def test_the_metric_has_the_total_bytes_of_open_partitions() -> None:
    sampled = Sampled(orders=3).add(5, 7, 9).sample().add(1)
    sampled.partitions[1].is_closed = True
    lines = render(busy_partition_metrics(sampled.busy)).decode().splitlines()
    assert lines[2:] == [
        'millstream_partition_produced_bytes_total{topic="orders",partition="2"} 9',
        'millstream_partition_produced_bytes_total{topic="orders",partition="0"} 6',
    ]


@pytest.mark.parametrize(
    ("partitions", "load", "is_hot"),
    [
        (4, [11 * MB, 3 * MB, 3 * MB, 3 * MB], True),
        (4, [5 * MB, 5 * MB, 5 * MB, 5 * MB], False),
        (4, [10 * MB, 10 * MB], False),
        (3, [90 * MB, 1 * MB, 1 * MB], False),
        (4, [9 * MB], False),
        (4, [10 * MB], True),
    ],
    ids=["more than half", "even", "exactly half", "three partitions", "little load", "all of it"],
)
def test_a_partition_with_most_bytes_of_a_busy_topic_is_a_warning(
    partitions: int, load: list[int], is_hot: bool
) -> None:
    sampled = Sampled(orders=partitions).add(*load).sample()
    found = list(hot_partitions(sampled.busy))
    assert [finding.is_problem for finding in found] == [False] * is_hot
    assert list(hot_partitions(sampled.sample().busy)) == [], "the load has ended"


def test_the_warning_names_partition_share_and_load() -> None:
    sampled = Sampled(orders=6).add(0, 0, 100 * MB, 20 * MB, 5 * MB).sample()
    (finding,) = hot_partitions(sampled.busy)
    assert finding.text == (
        "partition orders-2 gets 80% of the bytes written to topic orders (12.5 MB/s, 6 partitions);"
        " spread the message keys"
    )


def test_the_metric_of_hot_partitions_has_their_share() -> None:
    sampled = Sampled(orders=6).add(0, 0, 100 * MB, 20 * MB, 5 * MB).sample()
    lines = render(hot_partition_metrics(sampled.busy)).decode().splitlines()
    assert lines[2:] == ['millstream_hot_partition_share{topic="orders",partition="2"} 0.8']


def test_a_sample_without_elapsed_time_changes_nothing() -> None:
    sampled = Sampled(orders=4).add(20 * MB).sample()
    assert len(sampled.add(10 * MB).sample(0).busy.hot) == 1


def test_maintenance_samples_the_load_in_each_round() -> None:
    async def story(site: Site) -> None:
        partitions = await site.start()
        await partitions.create("orders", 2)
        _, second = partitions.of("orders")
        await committed(second, batch(b"value"))
        site.clock.turn(10_000)
        await partitions.upkeep()
        assert partitions.busy.busiest == [second]

    Site().run(story)
