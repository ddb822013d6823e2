"""Runs and filters: every key that was written is found, no other is, and damage is never read around."""

from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.message_ids.filter import BloomFilter
from millstream.partition.message_ids.keys import IndexedMessage
from millstream.partition.message_ids.run import BLOCK_BYTES, BLOCK_ENTRIES, IdRun, RunWriter, merge, packed
from millstream.storage.log.open_files import OpenFiles
from millstream.testing.simulated.disk import SimulatedDisk

contents = st.dictionaries(st.integers(0, 900), st.integers(0, 10**6 - 1), min_size=1, max_size=400)
SIZES = [1, 2, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 20 * BLOCK_ENTRIES + 7]


def key(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


class Shelf:
    """A directory with runs."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directory("/log")
        self._files = OpenFiles(self.disk, 8)
        self._next = 1

    def empty(self, count: int, end_offset: int) -> IdRun:
        self._next += 1
        return IdRun(
            "/log",
            self._next,
            self._files,
            count=count,
            filter_bytes=0,
            end_offset=end_offset,
            oldest_ms=0,
            newest_ms=0,
        )

    def run(self, entries: dict[bytes, IndexedMessage], end_offset: int = 10**6) -> IdRun:
        run = self.empty(len(entries), end_offset)
        writer = RunWriter(self.disk, run.path, len(entries))
        writer.add(packed(entries.items()))
        return self._finished(run, writer)

    def merged(self, *runs: IdRun) -> IdRun:
        run = self.empty(sum(run.count for run in runs), runs[-1].end_offset)
        writer = RunWriter(self.disk, run.path, run.count)
        for _ in merge(runs, writer):
            pass
        return self._finished(run, writer)

    def _finished(self, run: IdRun, writer: RunWriter) -> IdRun:
        writer.finish()
        run.filled(writer.count, writer.filter)
        run.filter = None  # To be read from the file.
        return run


@pytest.mark.parametrize("size", SIZES)
def test_every_key_of_a_run_is_found_and_no_other(size: int) -> None:
    run = Shelf().run({key(number): IndexedMessage(number, 1) for number in range(size)})
    assert [run.find(key(number)) for number in range(size)] == [IndexedMessage(number, 1) for number in range(size)]
    run.filter = BloomFilter(b"\xff" * 8)  # One that knows nothing: the blocks themselves must.
    assert not any(run.find(key(number)) for number in range(size, size + 300))


def test_keys_that_are_not_spread_evenly_are_found_too() -> None:
    keys = [number.to_bytes(16, "big") for number in range(0, 3000, 3)]
    run = Shelf().run({each: IndexedMessage(number, 1) for number, each in enumerate(keys)})
    run.filter = BloomFilter(b"\xff" * 8)
    assert [run.find(each) for each in keys] == [IndexedMessage(number, 1) for number in range(1000)]
    assert not any(run.find((number + 1).to_bytes(16, "big")) for number in range(0, 3000, 3))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(contents, min_size=2, max_size=5))
def test_several_runs_become_one_that_has_the_newest_place_of_each_key(contents: list[dict[int, int]]) -> None:
    shelf = Shelf()
    run = shelf.merged(
        *(shelf.run({key(n): IndexedMessage(at, 1) for n, at in content.items()}) for content in contents)
    )
    expected: dict[int, int] = {}
    for content in contents:
        expected |= content
    assert {n: place.offset for n in range(901) if (place := run.find(key(n))) is not None} == expected
    assert run.count >= len(expected)


def test_what_lies_beyond_the_end_of_a_log_that_was_cut_is_not_found_and_does_not_come_back_by_merging() -> None:
    shelf = Shelf()
    cut = shelf.run({key(number): IndexedMessage(number, 1) for number in range(100)})
    cut.end_offset = 50
    newer = shelf.run({key(1000 + number): IndexedMessage(50 + number, 1) for number in range(100)})
    for runs in ([cut], [shelf.merged(cut, newer)]):
        found = [number for number in range(100) if any(run.find(key(number)) for run in runs)]
        assert found == list(range(50))


@pytest.mark.parametrize("position", [0, BLOCK_BYTES - 1, BLOCK_BYTES + 20, -1])
def test_a_damaged_run_says_so_and_never_that_a_key_is_not_there(position: int) -> None:
    shelf = Shelf()
    run = shelf.run({key(number): IndexedMessage(number, 1) for number in range(3 * BLOCK_ENTRIES)})
    file = shelf.disk.open(run.path)
    at = position % file.size()
    file.write(bytes([file.read(1, at)[0] ^ 1]), at)
    errors = []
    for number in range(3 * BLOCK_ENTRIES):
        try:
            assert run.find(key(number)) == IndexedMessage(number, 1)
        except MillstreamError as error:
            errors.append(error)
    assert {error.code for error in errors} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert all(run.path in error.detail for error in errors)


@pytest.mark.parametrize("count", [1, 10, 5000])
def test_a_filter_knows_its_keys_and_hardly_any_other(count: int) -> None:
    keys = BloomFilter.empty(count)
    keys.add(key(number) for number in range(count))
    assert all(keys.may_have(key(number)) for number in range(count))
    others = Random(1).sample(range(10**6, 10**9), 5000)
    assert sum(keys.may_have(key(number)) for number in others) < 200
