"""Yields the metrics of the data that a broker stores: its topics, disks and consumer groups.

Each metric with many label sets is a generator over a snapshot, so that a scrape renders it in slices.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from millstream.groups.runtime.coordinator import GroupCoordinator
from millstream.groups.runtime.group_lag import ReportedLag
from millstream.partition.leadership import TopicTraffic
from millstream.partition.served.busy_partitions import BusyPartitions
from millstream.partition.served.topic_figures import TopicFigures
from millstream.process.metrics import NO_SAMPLE, Metric, Sample, histogram
from millstream.storage.disk_reserve import DiskReserve
from millstream.storage.store import LogStore

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


def lag_metrics(groups: GroupCoordinator) -> Iterable[Metric]:
    """Yields the lag of the consumer groups, and the times since their last commits."""
    report = groups.lag_report()
    yield Metric(
        "millstream_group_lag",
        "gauge",
        "Messages after the committed offset of a group. Topic and partition are empty for the sum of further ones.",
        (NO_SAMPLE if each is None else _lag_sample(each) for each in report.lags()),
    )
    yield Metric(
        "millstream_group_commit_age_seconds",
        "gauge",
        "Time since the last commit of a group that has members or lag.",
        (({"group": each.group_id}, each.age_ms / 1000) for each in report.ages),
    )


def _lag_sample(each: ReportedLag) -> Sample:
    return {"group": each.group_id, "topic": each.topic, "partition": each.partition}, each.lag


def directory_metrics(reserves: Sequence[DiskReserve]) -> Iterable[Metric]:
    """Yields the space of each data directory's volume when it was last measured."""
    spaces = [({"directory": each.directory}, each.space) for each in reserves if each.space is not None]
    yield Metric(
        "millstream_directory_used_bytes",
        "gauge",
        "Used space of the volume.",
        [(labels, space.total_bytes - space.free_bytes) for labels, space in spaces],
    )
    yield Metric(
        "millstream_directory_free_bytes",
        "gauge",
        "Free space of the volume.",
        [(labels, space.free_bytes) for labels, space in spaces],
    )
    yield Metric(
        "millstream_directory_total_bytes",
        "gauge",
        "Size of the volume.",
        [(labels, space.total_bytes) for labels, space in spaces],
    )
    yield Metric(
        "millstream_directory_writes_refused",
        "gauge",
        "1 while appends are refused because the disk is full.",
        [({"directory": each.directory}, int(each.is_released)) for each in reserves],
    )


def disk_metrics(store: LogStore) -> Iterable[Metric]:
    """Yields the durations of writes, flushes and reads of each data directory, and the size of its journal."""
    directories = [({"directory": each.path}, each) for each in store.data_directories]
    yield Metric(
        "millstream_append_seconds",
        "histogram",
        "Duration of a write to a segment. Measured with flush=always only.",
        [(labels, each.figures.appends) for labels, each in directories],
    )
    yield Metric(
        "millstream_flush_seconds",
        "histogram",
        "Duration of a round of group commit, from the first request to the result.",
        [(labels, each.figures.rounds) for labels, each in directories],
    )
    yield Metric(
        "millstream_group_commit_batches",
        "histogram",
        "Batches that a round of group commit flushes.",
        [(labels, each.figures.round_batches) for labels, each in directories],
    )
    yield Metric(
        "millstream_fsync_seconds",
        "histogram",
        "Duration of a flush of a file: the segments of one partition, the journal, or the checkpoint.",
        [
            ({**labels, "kind": kind}, durations)
            for labels, each in directories
            for kind, durations in each.figures.flushes.items()
        ],
    )
    yield Metric(
        "millstream_journal_bytes",
        "gauge",
        "Size of the active journal.",
        [(labels, each.journal_bytes) for labels, each in directories],
    )
    yield histogram("millstream_cold_read_seconds", "Duration of a read that waited for the disk.", store.cold_reads)


def _by_topic(figures: TopicFigures, value: Callable[[TopicTraffic], int]) -> Iterator[Sample]:
    for topic, traffic in figures.snapshot():
        yield {"topic": topic}, value(traffic)
