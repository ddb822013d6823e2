"""Tests the truncation of an index in use."""

import pytest

from builders.run_site import HASHED, RunSite
from millstream.testing.simulated.disk import DiskOperation


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def site_with(*numbers: int) -> RunSite:
    """Create a site whose log has one message per number, with all entries saved."""
    site = RunSite(HASHED)
    site.append(*map(key, numbers))
    site.save()
    return site


def offsets(site: RunSite, *numbers: int) -> list[int | None]:
    return [site.offset(key(number)) for number in numbers]


def four_runs() -> RunSite:
    site = RunSite(HASHED)
    for first in range(0, 8, 2):
        site.append(key(first), key(first + 1))
        site.save()
    return site


def test_truncated_entries_are_removed_from_memory_and_runs() -> None:
    site = site_with(1, 2, 3)
    site.append(key(4))
    assert offsets(site, 3) == [2]
    site.truncate(1)
    assert offsets(site, 1, 2, 3, 4) == [0, None, None, None]
    assert site.index.covered == 1
    assert site.budget.known == len(site.index) == 3, "the file still has three entries"


def test_a_truncation_above_the_saved_runs_writes_nothing() -> None:
    site = site_with(1, 2)
    site.append(key(3), key(4))
    revision, operations = site.index.revision, site.disk.operations
    site.truncate(3)
    assert offsets(site, 1, 2, 3, 4) == [0, 1, 2, None]
    assert (site.index.revision, site.disk.operations) == (revision, operations)
    assert site.budget.known == 3


def test_new_messages_at_truncated_offsets_survive_a_restart() -> None:
    site = site_with(1, 2, 3)
    site.truncate(1)
    site.append(*map(key, (7, 8, 9)))
    site.restart()
    assert offsets(site, 1, 2, 3, 7, 8, 9) == [0, None, None, 1, 2, 3]


def test_a_merge_drops_truncated_entries() -> None:
    site = four_runs()
    site.truncate(5)
    assert site.merge()
    (run,) = site.index.runs
    assert (run.count, run.end_offset) == (5, 5)
    assert offsets(site, *range(8)) == [0, 1, 2, 3, 4, None, None, None]


def test_a_truncation_during_a_merge_applies_to_the_merged_run() -> None:
    site = four_runs()
    assert site.merge(meanwhile=lambda: site.truncate(5))
    (run,) = site.index.runs
    assert (run.count, run.end_offset) == (8, 5)
    assert offsets(site, *range(8)) == [0, 1, 2, 3, 4, None, None, None]


def test_a_run_that_a_merge_leaves_empty_is_removed() -> None:
    site = four_runs()
    site.truncate(0)
    assert site.merge()
    assert site.index.runs == ()
    assert [name for name in site.disk.list("/log") if name.endswith(".run")] == []
    assert site.budget.known == len(site.index) == 0


def test_nothing_is_added_until_the_truncation_is_durable() -> None:
    site = site_with(1, 2, 3)
    revision = site.index.revision

    def refuse(operation: DiskOperation) -> None:
        raise OSError(5, "input/output error")

    site.disk.before = refuse
    with pytest.raises(OSError, match="input/output"):
        site.truncate(1)
    assert site.index.revision > revision, "what workers found before is stale"
    assert offsets(site, 2) == [None]
    with pytest.raises(AssertionError, match="durable"):
        site.append(key(9))
    site.disk.before = None
    again = site.index.name_runs(0)
    again.write()
    site.index.saved(again)
    site.keys = [key(1)]
    site.append(key(8))
    assert offsets(site, 1, 2, 8) == [0, None, 1]
