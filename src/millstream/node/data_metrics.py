"""Yields the metrics of the data that a broker stores: its topics, disks and consumer groups.

Each metric with many label sets is a generator over a snapshot, so that a scrape renders it in slices.
"""

from collections.abc import Callable, Iterable, Iterator

from millstream.partition.leadership import TopicTraffic
from millstream.partition.served.busy_partitions import BusyPartitions
from millstream.partition.served.topic_figures import TopicFigures
from millstream.process.metrics import Metric, Sample

HOT_MAX = 50
"""Maximum number of hot partitions with a sample."""

_TOPIC_COUNTERS: tuple[tuple[str, str, Callable[[TopicTraffic], int]], ...] = (
    ("produced_bytes", "Bytes of batches appended to a topic.", lambda traffic: traffic.produced_bytes),
    ("produced_messages", "Messages appended to a topic.", lambda traffic: traffic.produced_messages),
    ("fetched_bytes", "Bytes of batches sent to readers of a topic.", lambda traffic: traffic.fetched_bytes),
    ("fetched_messages", "Messages sent to readers of a topic.", lambda traffic: traffic.fetched_messages),
)


def topic_metrics(figures: TopicFigures) -> Iterable[Metric]:
    """Yields the traffic of each topic. Topics without figures of their own share one label set."""
    for name, text, value in _TOPIC_COUNTERS:
        yield Metric(f"millstream_topic_{name}_total", "counter", text, _by_topic(figures, value))


def busy_partition_metrics(busy: BusyPartitions) -> Iterable[Metric]:
    """Yields the bytes appended to the busiest partitions. A partition that is less busy now has no value."""
    yield Metric(
        "millstream_partition_produced_bytes_total",
        "counter",
        "Bytes of batches appended to a partition, for the partitions with the most in the last sample.",
        (
            ({"topic": partition.topic, "partition": str(partition.number)}, partition.produced_bytes)
            for partition in busy.busiest
            if not partition.is_closed
        ),
    )


def hot_partition_metrics(busy: BusyPartitions) -> Iterable[Metric]:
    """Yields the hot partitions. The other samples do not show them: they have no number of partitions per topic."""
    samples = [({"topic": hot.topic, "partition": str(hot.number)}, hot.share) for hot in busy.hot[:HOT_MAX]]
    text = "Share of the bytes of its topic that a hot partition got during the last sample."
    yield Metric("millstream_hot_partition_share", "gauge", text, samples)


def _by_topic(figures: TopicFigures, value: Callable[[TopicTraffic], int]) -> Iterator[Sample]:
    for topic, traffic in figures.snapshot():
        yield {"topic": topic}, value(traffic)
