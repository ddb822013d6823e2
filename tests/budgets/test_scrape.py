"""Tests how long the metrics of the data block the event loop, with 10,000 partitions and 1,000 groups."""

import asyncio
from pathlib import Path

from budgets import table
from budgets.counting import count_calls_at_once
from builders.batches import batch
from builders.partitions import committed
from builders.served import ServedBroker, serve
from millstream.groups.commands import CommitOffsets, OffsetToCommit
from millstream.groups.runtime.group_lag import SERIES_MAX
from millstream.model.ids import LeaderEpoch, Offset
from millstream.node.data_metrics import busy_partition_metrics, disk_metrics, lag_metrics, topic_metrics
from millstream.partition.leadership import Leadership
from millstream.partition.served.busy_partitions import BUSIEST_MAX, BusyPartitions
from millstream.partition.served.topic_figures import OTHER, OWN_MAX
from millstream.process.metrics import Metric, render_in_slices
from millstream.testing.simulated.clock import ManualClock

PARTITIONS = 10_000
TOPICS = OWN_MAX + 100
WIDE = PARTITIONS - TOPICS + 1
"""Partitions of the one topic that has more than one."""

GROUPS = 1_000
OFFSETS = 12
WRITTEN = 100


async def fill(served: ServedBroker) -> None:
    """Create topics and groups, and write to some partitions of the wide topic."""
    await served.topic("wide", WIDE)
    for number in range(TOPICS - 1):
        await served.topic(f"narrow-{number}")
    for partition in served.partitions.of("wide")[:WRITTEN]:
        await committed(partition, batch())
    offsets = tuple(OffsetToCommit("wide", number, Offset(0), LeaderEpoch(0), "") for number in range(OFFSETS))
    for number in range(GROUPS):
        group_id = f"group-{number}"
        await served.groups.request(group_id, CommitOffsets(group_id, -1, "", None, offsets))


def metrics(served: ServedBroker) -> list[Metric]:
    partitions = served.partitions
    return [
        *topic_metrics(partitions.figures),
        *busy_partition_metrics(partitions.busy),
        *disk_metrics(partitions.store),
        *lag_metrics(served.groups),
    ]


def check_lines(lines: list[str]) -> None:
    assert sum(line.startswith("millstream_topic_produced_bytes_total{") for line in lines) == OWN_MAX + 1
    assert f'millstream_topic_produced_messages_total{{topic="wide"}} {WRITTEN}' in lines
    assert any(line.startswith(f'millstream_topic_fetched_bytes_total{{topic="{OTHER}"}}') for line in lines)
    assert sum(line.startswith("millstream_partition_produced_bytes_total{") for line in lines) == BUSIEST_MAX
    lags = [line for line in lines if line.startswith("millstream_group_lag{")]
    sums = [line for line in lags if 'topic="",partition=""' in line]
    assert len(lags) - len(sums) == SERIES_MAX
    assert sum(float(line.rpartition(" ")[2]) for line in lags) == GROUPS * OFFSETS
    assert sum(line.startswith("millstream_group_commit_age_seconds{") for line in lines) == GROUPS


def test_the_metrics_of_many_topics_and_groups_run_in_short_slices(tmp_path: Path) -> None:
    scrape: list[Metric] = []
    partitions: list[Leadership] = []

    async def story(served: ServedBroker) -> None:
        await fill(served)
        served.clock.turn(10_000)
        partitions.extend(served.partitions.all())
        await served.partitions.busy.sample(partitions)
        check_lines((await render_in_slices(metrics(served))).decode().splitlines())
        scrape.extend(metrics(served))

    serve(tmp_path, story)

    # The broker has stopped, so that the calls of its background tasks do not count.
    clock = ManualClock()
    busy = BusyPartitions(clock)
    clock.advance_ms(10_000)
    sampled = asyncio.run(count_calls_at_once(busy.sample(partitions)))
    assert len(busy.busiest) == BUSIEST_MAX
    table.check(table.SAMPLE_WIDE, {table.CALLS_AT_ONCE: sampled})
    text: list[bytes] = []

    async def render() -> None:
        text.append(await render_in_slices(scrape))

    at_once = asyncio.run(count_calls_at_once(render()))
    assert text[0].count(b"\nmillstream_group_lag{") == SERIES_MAX + text[0].count(b'topic="",partition=""')
    table.check(table.SCRAPE_DATA, {table.CALLS_AT_ONCE: at_once})
