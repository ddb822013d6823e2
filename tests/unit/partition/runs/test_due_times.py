"""Tests due times in sorted runs: many entries per key, read in key order, dropped when they are completed."""

import pytest

from builders.run_site import DUE_TIMES, RunSite, due
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.runs.budget import RunLimits
from millstream.partition.runs.layout import BLOCK_ENTRIES
from millstream.testing.simulated.disk import DiskOperation


def site_of(*runs: list[int], limits: RunLimits | None = None) -> RunSite:
    """Create a site that has saved each list of due times as one run."""
    site = RunSite(DUE_TIMES, limits)
    for times in runs:
        site.append(*map(due, times))
        site.save()
    return site


def run_files(site: RunSite) -> int:
    return sum(name.endswith(".run") for name in site.disk.list("/log"))


def test_entries_in_memory_and_in_runs_are_read_in_order_of_due_time() -> None:
    site = site_of([50, 10, 10], [10, 40])
    site.append(due(45), due(10))
    expected = [(10, 1), (10, 2), (10, 3), (10, 6), (40, 4), (45, 5), (50, 0)]
    assert site.due() == expected
    assert site.due(10, 45) == expected[:5]
    assert site.due(11, 40) == []
    site.restart()
    assert site.due() == expected


@pytest.mark.parametrize("count", [BLOCK_ENTRIES - 1, BLOCK_ENTRIES, 5 * BLOCK_ENTRIES + 3])
def test_a_range_that_spans_blocks_is_read_completely(count: int) -> None:
    site = site_of([number // 300 for number in range(count)], [0] * count)
    for low, high in [(0, 1), (1, 2), (0, 2), (1, 9)]:
        assert site.due(low, high) == [each for each in site.live() if low <= each[0] < high]


def test_a_scan_reads_only_the_blocks_that_it_needs() -> None:
    site = site_of(list(range(64 * BLOCK_ENTRIES)))
    site.restart()
    reads = site.disk.counts["read"]
    assert site.due(5_000, 5_010) == [(time, time) for time in range(5_000, 5_010)]
    assert site.disk.counts["read"] - reads <= 8
    reads = site.disk.counts["read"]
    assert site.due(10**6, 10**7) == []
    assert site.disk.counts["read"] == reads, "the list of runs has the first and the last key"


def test_a_save_and_a_merge_during_a_scan_do_not_change_what_it_finds() -> None:
    site = site_of([1], [2], [3])
    site.append(due(4))
    scan = site.index.range(due(0), due(9)).entries()
    assert [next(scan)] == [due(1) + due(0)]
    site.save()
    assert [entry[:8] for entry in scan] == [due(2), due(3), due(4)]


def test_a_scan_is_repeated_when_a_merge_removed_its_run() -> None:
    site = site_of([1], [2], [3], [4])
    scan = site.index.range(due(0), due(9))
    site.merge()
    with pytest.raises(FileNotFoundError):
        list(scan.entries())
    assert site.due() == [(time, time - 1) for time in (1, 2, 3, 4)]


def test_runs_without_live_entries_are_removed() -> None:
    site = site_of([1, 2], [3, 4], [9, 9])
    site.index.done_below(due(4))
    assert site.due() == [(4, 3), (9, 4), (9, 5)]
    assert [run.last_key for run in site.index.runs] == [due(4), due(9)]
    site.index.trim(4)
    assert site.due() == [(9, 4), (9, 5)]
    assert [run.last_key for run in site.index.runs] == [due(9)]
    assert site.budget.known == len(site.index) == 2
    site.save()
    assert run_files(site) == 1


def test_completed_entries_are_neither_saved_nor_merged() -> None:
    site = site_of([1, 9], [1, 9], [1, 9])
    site.append(due(1), due(9))
    site.index.done_below(due(5))
    site.save()
    assert site.index.runs[-1].count == 1
    assert site.merge()
    (run,) = site.index.runs
    assert (run.count, run.first_key) == (4, due(9))
    site.append(due(2))
    assert [time for time, _ in site.due()] == [9, 9, 9, 9]


def test_an_unlimited_index_keeps_entries_that_cannot_be_saved() -> None:
    limits = RunLimits(in_memory_each=4)
    site = RunSite(DUE_TIMES, limits)

    def refuse(operation: DiskOperation) -> None:
        raise OSError(5, "input/output error")

    site.disk.before = refuse
    for number in range(20):
        assert site.index.is_overfull == (number > 15)
        site.append(due(number))
        with pytest.raises(OSError, match="input/output"):
            site.save()
    site.disk.before = None
    assert len(site.due()) == 20
    site.save()
    assert not site.index.is_overfull
    assert site.due() == site.live()


@pytest.mark.parametrize("position", [0, 100, 128 * 16 + 2])
def test_a_bit_flip_in_a_run_is_reported_by_a_scan(position: int) -> None:
    site = site_of(list(range(BLOCK_ENTRIES)))
    (run,) = site.index.runs
    flipped = site.disk.contents(run.path)[position] ^ 4
    site.disk.spoil(run.path, position, bytes([flipped]))
    with pytest.raises(MillstreamError) as error:
        site.due()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert run.path in error.value.detail


def test_any_bit_flip_in_the_list_of_runs_causes_a_replay() -> None:
    size = len(site_of([3, 1], [2, 7]).disk.contents("/log/due.snapshot"))
    for position in range(size):
        site = site_of([3, 1], [2, 7])
        flipped = site.disk.contents("/log/due.snapshot")[position] ^ 1
        site.disk.spoil("/log/due.snapshot", position, bytes([flipped]))
        site.restart()
        assert site.index.runs == ()
        assert site.due() == site.live()
