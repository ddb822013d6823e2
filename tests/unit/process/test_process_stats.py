"""Tests how a process divides its limit of open files, and when it started."""

import time

import pytest

from millstream.process.process_stats import FILES_ENOUGH, FILES_FEWEST, segment_files_max, start_time_s


@pytest.mark.parametrize(
    ("limit", "files"),
    [(20, FILES_FEWEST), (200, 100), (1_024, 512), (20_000, FILES_ENOUGH), (1_000_000, FILES_ENOUGH)],
)
def test_segment_files_get_half_of_the_open_file_limit_within_bounds(limit: int, files: int) -> None:
    assert segment_files_max(limit) == files


def test_the_start_time_is_the_same_at_each_call_and_not_in_the_future() -> None:
    started_s = start_time_s()
    assert started_s == start_time_s()
    assert 1_600_000_000 < started_s <= time.time() + 1  # The kernel rounds the time of the boot to a second.
