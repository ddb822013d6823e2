"""Tests runs and filters: every written key is found, no other is, and damage is reported."""

from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.runs.bloom_filter import BloomFilter
from millstream.partition.runs.layout import BLOCK_ENTRIES, OFFSET, RunLayout
from millstream.partition.runs.live_range import LiveRange
from millstream.partition.runs.merging import merge
from millstream.partition.runs.run import CHECKSUM, RunFacts, SortedRun
from millstream.partition.runs.run_writer import RunWriter
from millstream.storage.log.open_files import OpenFiles
from millstream.testing.simulated.disk import SimulatedDisk

contents = st.dictionaries(st.integers(0, 900), st.integers(0, 10**6 - 1), min_size=1, max_size=400)
SIZES = [1, 2, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 20 * BLOCK_ENTRIES + 7]


LAYOUT = RunLayout(name="test", kind=b"TEST", key_bytes=16, value_bytes=8, offset_at=16, is_unique=True, is_hashed=True)
BLOCK_BYTES = BLOCK_ENTRIES * LAYOUT.entry_bytes + CHECKSUM.size


def key(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


def value(offset: int) -> bytes:
    return OFFSET.pack(offset)


class RunDirectory:
    """A directory with runs."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory("/log")
        self._files = OpenFiles(self.disk, 8)
        self._next = 1

    def empty(self, count: int, end_offset: int) -> SortedRun:
        self._next += 1
        return SortedRun(LAYOUT, "/log", self._files, LiveRange(), RunFacts(self._next, count, 0, end_offset, 0, 0))

    def run(self, entries: dict[bytes, bytes], end_offset: int = 10**7) -> SortedRun:
        run = self.empty(len(entries), end_offset)
        writer = RunWriter(self.disk, run.path, LAYOUT, len(entries))
        writer.add(sorted(key + value for key, value in entries.items()))
        return self._finished(run, writer)

    def merged(self, *runs: SortedRun) -> SortedRun:
        run = self.empty(sum(run.count for run in runs), runs[-1].end_offset)
        writer = RunWriter(self.disk, run.path, LAYOUT, run.count)
        for _ in merge(runs, writer):
            pass
        return self._finished(run, writer)

    def _finished(self, run: SortedRun, writer: RunWriter) -> SortedRun:
        run.written(writer.finish())
        run.filter = None  # To be read from the file.
        return run


@pytest.mark.parametrize("size", SIZES)
def test_every_key_of_a_run_is_found_and_no_other(size: int) -> None:
    run = RunDirectory().run({key(number): value(number) for number in range(size)})
    assert [run.find(key(number)) for number in range(size)] == [value(number) for number in range(size)]
    run.filter = BloomFilter(b"\xff" * 8)  # A filter that excludes no key, so that the blocks are searched.
    assert not any(run.find(key(number)) for number in range(size, size + 300))


def test_unevenly_distributed_keys_are_found() -> None:
    keys = [number.to_bytes(16, "big") for number in range(0, 3000, 3)]
    run = RunDirectory().run({each: value(number) for number, each in enumerate(keys)})
    run.filter = BloomFilter(b"\xff" * 8)
    assert [run.find(each) for each in keys] == [value(number) for number in range(1000)]
    assert not any(run.find((number + 1).to_bytes(16, "big")) for number in range(0, 3000, 3))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(contents, min_size=2, max_size=5))
def test_a_merge_keeps_the_newest_value_of_each_key(contents: list[dict[int, int]]) -> None:
    shelf = RunDirectory()
    run = shelf.merged(*(shelf.run({key(n): value(at) for n, at in content.items()}) for content in contents))
    expected: dict[int, int] = {}
    for content in contents:
        expected |= content
    assert {n: OFFSET.unpack(found)[0] for n in range(901) if (found := run.find(key(n))) is not None} == expected
    assert run.count >= len(expected)


@pytest.mark.parametrize("stretch", [1, 3, 1000])
def test_runs_with_different_key_densities_are_merged_in_key_order(stretch: int) -> None:
    """The runs have keys of different densities, so each step ends at a different key in each run."""
    shelf = RunDirectory()
    contents = [{n.to_bytes(16, "big"): value(n) for n in range(0, 2500 * step, step)} for step in (1, 2, stretch)]
    run = shelf.merged(*map(shelf.run, contents))
    expected = sorted(set().union(*contents))
    found = [entry[:16] for number in range(run.blocks) for entry in run.live_entries(run.block(number))]
    assert found == expected


def test_entries_after_a_truncation_are_not_found_or_merged() -> None:
    shelf = RunDirectory()
    cut = shelf.run({key(number): value(number) for number in range(100)})
    cut.end_offset = 50
    newer = shelf.run({key(1000 + number): value(50 + number) for number in range(100)})
    for runs in ([cut], [shelf.merged(cut, newer)]):
        found = [number for number in range(100) if any(run.find(key(number)) for run in runs)]
        assert found == list(range(50))


@pytest.mark.parametrize("position", [0, BLOCK_BYTES - 1, BLOCK_BYTES + 20, -1])
def test_a_damaged_run_raises_an_error_instead_of_reporting_absence(position: int) -> None:
    shelf = RunDirectory()
    run = shelf.run({key(number): value(number) for number in range(3 * BLOCK_ENTRIES)})
    file = shelf.disk.open(run.path)
    at = position % file.size()
    file.write(bytes([file.read(1, position=at)[0] ^ 1]), at)
    errors = []
    for number in range(3 * BLOCK_ENTRIES):
        try:
            assert run.find(key(number)) == value(number)
        except MillstreamError as error:
            errors.append(error)
    assert {error.code for error in errors} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert all(run.path in error.detail for error in errors)


@pytest.mark.parametrize("count", [1, 10, 5000])
def test_a_filter_has_its_keys_and_few_false_positives(count: int) -> None:
    keys = BloomFilter.empty(count)
    keys.add(key(number) for number in range(count))
    assert all(keys.may_have(key(number)) for number in range(count))
    others = Random(1).sample(range(10**6, 10**9), 5000)
    assert sum(keys.may_have(key(number)) for number in others) < 200
