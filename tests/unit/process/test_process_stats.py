"""Tests how a process divides its limit of open files."""

import pytest

from millstream.process.process_stats import FILES_ENOUGH, FILES_FEWEST, segment_files_max


@pytest.mark.parametrize(
    ("limit", "files"),
    [(20, FILES_FEWEST), (200, 100), (1_024, 512), (20_000, FILES_ENOUGH), (1_000_000, FILES_ENOUGH)],
)
def test_segment_files_get_half_of_the_open_file_limit_within_bounds(limit: int, files: int) -> None:
    assert segment_files_max(limit) == files
