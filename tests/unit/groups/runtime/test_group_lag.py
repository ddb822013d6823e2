"""Tests the lag of consumer groups per partition, the sums beyond the limit, and the ages of the last commits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from builders.batches import batch, numbered_batch
from builders.groups.machine import WALL_MS, Driver
from builders.groups.site import EVENTS, GROUP, GroupSite, run_groups, settled_member
from builders.partitions import ELSEWHERE, committed
from millstream.groups.runtime.group_lag import CommitAge, LagReport, ReportedLag
from millstream.node.data_metrics import lag_metrics
from millstream.process.metrics import render


def read(report: LagReport) -> list[ReportedLag]:
    return [each for each in report.lags() if each is not None]


async def fill(site: GroupSite, *counts: int) -> None:
    """Write this many messages to each partition."""
    for partition, count in zip(site.partitions.of(EVENTS), counts, strict=False):
        await committed(partition, numbered_batch(count))


def lags(site: GroupSite) -> list[ReportedLag]:
    return sorted(read(site.groups.lag_report()))


def ages(site: GroupSite) -> Sequence[CommitAge]:
    report = site.groups.lag_report()
    read(report)
    return sorted(report.ages)


def test_the_lag_of_a_group_is_the_distance_to_the_high_watermark() -> None:
    async def story(site: GroupSite) -> None:
        await fill(site, 10, 5)
        await site.commit(3)
        await site.commit(5, partition=1)
        await site.commit(10, group_id="other")
        assert lags(site) == [("other", EVENTS, "0", 0), (GROUP, EVENTS, "0", 7), (GROUP, EVENTS, "1", 0)]
        partition = site.partitions.of(EVENTS)[0]
        partition.append(memoryview(batch(b"not acknowledged yet")))
        assert (partition.log.end_offset, lags(site)[1][-1]) == (11, 7)

    run_groups(story)


def test_an_offset_after_the_end_has_no_lag() -> None:
    async def story(site: GroupSite) -> None:
        await fill(site, 10)
        await site.commit(12)
        assert lags(site) == [(GROUP, EVENTS, "0", 0)]

    run_groups(story)


def test_partitions_that_another_broker_leads_and_deleted_topics_have_no_lag() -> None:
    async def story(site: GroupSite) -> None:
        await fill(site, 10, 10)
        await site.commit(4)
        await site.commit(4, partition=1)
        await site.move_leader(EVENTS, 0, ELSEWHERE.node_id)
        assert lags(site) == [(GROUP, EVENTS, "1", 6)]
        await site.partitions.delete(EVENTS)
        assert (lags(site), ages(site)) == ([], [])

    run_groups(story)


def test_the_commit_age_needs_lag_or_members() -> None:
    async def story(site: GroupSite) -> None:
        await fill(site, 10)
        await site.commit(4, group_id="behind")
        await asyncio.sleep(100)
        await site.commit(10, group_id="idle")
        await settled_member(site, "never committed")
        await asyncio.sleep(5)
        assert [(each.group_id, round(each.age_ms, -2)) for each in ages(site)] == [("behind", 105_000)]
        await settled_member(site, "idle")
        assert [each.group_id for each in ages(site)] == ["behind", "idle"]

    run_groups(story)


class Ends:
    """Finds partitions with a fixed high watermark."""

    high_watermark = 100

    def __call__(self, topic: str, number: int) -> Any:
        return self


def test_the_lag_of_further_partitions_is_one_sum_per_group() -> None:
    driver = Driver()
    for group in ("a", "b", "c"):
        driver.commit(*(("orders", number, 90 + number) for number in range(3)), group_id=group)
    report = LagReport([driver.machine], Ends(), driver.now.wall_ms, series_max=4)
    assert read(report) == [
        ReportedLag("a", "orders", "0", 10),
        ReportedLag("a", "orders", "1", 9),
        ReportedLag("a", "orders", "2", 8),
        ReportedLag("b", "orders", "0", 10),
        ReportedLag("b", "", "", 17),
        ReportedLag("c", "", "", 27),
    ]
    assert [age.group_id for age in report.ages] == ["a", "b", "c"]


def test_a_clock_that_jumped_back_yields_no_negative_age() -> None:
    driver = Driver()
    driver.commit(("orders", 0, 1))
    report = LagReport([driver.machine], Ends(), WALL_MS)
    read(report)
    assert report.ages == [CommitAge("g", 0)]


@pytest.mark.parametrize("series_max", [0, 10_000])
def test_each_committed_offset_is_a_step_of_the_report(series_max: int) -> None:
    driver = Driver()
    driver.commit(*(("orders", number, 1) for number in range(300)))
    report = LagReport([driver.machine], Ends(), driver.now.wall_ms, series_max=series_max)
    assert len(list(report.lags())) >= 300


def test_groups_that_change_during_a_report_do_not_stop_it() -> None:
    driver = Driver()
    for number in range(10):
        driver.commit(("orders", 0, 90), ("orders", 1, 90), group_id=f"g{number}")
    report = LagReport([driver.machine], Ends(), driver.now.wall_ms)
    steps = report.lags()
    first = next(steps)
    assert first is not None
    driver.commit(("bills", 0, 5), group_id=first.group_id)
    driver.delete("g5")
    driver.commit(("orders", 0, 90), group_id="late")
    found = {each.group_id for each in steps if each is not None}
    assert found == {f"g{number}" for number in range(10) if number != 5}


def test_the_lag_metrics_have_a_series_per_group_and_partition() -> None:
    async def story(site: GroupSite) -> None:
        await fill(site, 10)
        await site.commit(4)
        lines = render(lag_metrics(site.groups)).decode().splitlines()
        assert f'millstream_group_lag{{group="{GROUP}",topic="{EVENTS}",partition="0"}} 6' in lines
        (age,) = [line for line in lines if line.startswith("millstream_group_commit_age_seconds{")]
        assert age.startswith(f'millstream_group_commit_age_seconds{{group="{GROUP}"}} 0.')

    run_groups(story)
