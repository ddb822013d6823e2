"""Compares an index of sorted runs with its log through saves, merges, cuts, full disks and power loss."""

from collections.abc import Callable
from hashlib import blake2b
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from builders.run_site import DUE_TIMES, HASHED, Fault, RunSite, due
from millstream.partition.runs.budget import RunLimits
from millstream.partition.runs.layout import RunLayout
from millstream.testing.simulated.disk import PowerLoss

TIMES = 40
seeds = st.integers(0, 2**32)
shares = st.floats(0, 1)
steps = st.integers(1, 12)


class AnyIndex(RuleBasedStateMachine):
    layout: RunLayout

    @initialize(in_memory=st.sampled_from([3, 50, 400]))
    def begin(self, in_memory: int) -> None:
        self.site = RunSite(self.layout, RunLimits(in_memory_each=in_memory))
        self.every_key: set[bytes] = set()
        self.flushed = 0
        """The log has so much on stable storage."""

    def key(self, random: Random) -> bytes:
        raise NotImplementedError

    def between(self, share: float) -> int:
        """Return an offset of the log."""
        site = self.site
        return site.start_offset + round(share * (site.end_offset - site.start_offset))

    @rule(count=st.integers(1, 150), seed=seeds)
    def append(self, count: int, seed: int) -> None:
        random = Random(seed)
        keys = [self.key(random) for _ in range(count)]
        self.every_key.update(keys)
        self.site.append(*keys)

    @rule(runs=st.integers(2, 8), count=st.integers(1, 60), seed=seeds)
    def append_and_save(self, runs: int, count: int, seed: int) -> None:
        for number in range(runs):
            self.append(count, seed + number)
            self.site.save()

    @rule()
    def flush_log(self) -> None:
        self.flushed = self.site.end_offset

    @rule()
    def save(self) -> None:
        self.site.save()

    @rule()
    def merge(self) -> None:
        self.site.merge()

    @rule(share=shares)
    def truncate(self, share: float) -> None:
        self.site.truncate(self.between(share))
        self.flushed = min(self.flushed, self.site.end_offset)

    @rule(share=shares)
    def truncate_during_a_merge(self, share: float) -> None:
        self.site.merge(meanwhile=lambda: self.truncate(share))

    @rule(share=shares)
    def trim_during_a_merge(self, share: float) -> None:
        self.site.merge(meanwhile=lambda: self.trim(share))

    @rule(share=shares)
    def trim(self, share: float) -> None:
        self.flushed = max(self.flushed, self.between(share))
        self.site.start_offset = self.between(share)
        self.site.index.trim(self.site.start_offset)

    @rule()
    def restart(self) -> None:
        self.site.restart()

    @rule(share=shares)
    def lose_list_and_restart(self, share: float) -> None:
        path = f"/log/{self.layout.name}.snapshot"
        if self.site.disk.exists(path):
            content = self.site.disk.contents(path)
            at = min(int(share * len(content)), len(content) - 1)
            self.site.disk.spoil(path, at, bytes([content[at] ^ 16]))
        self.site.restart()

    @rule(what=st.sampled_from(["save", "merge"]), step=steps)
    def fail(self, what: str, step: int) -> None:
        self.site.disk.before = Fault(step, OSError)
        try:
            getattr(self.site, what)()
        except OSError:
            pass
        self.site.disk.before = None

    @rule(what=st.sampled_from(["save", "merge", "truncate", "restart"]), step=steps, share=shares, seed=seeds)
    def lose_power(self, what: str, step: int, share: float, seed: int) -> None:
        site, random = self.site, Random(seed)
        doing: dict[str, Callable[[], None]] = {"truncate": lambda: self.truncate(share)}
        site.disk.before = Fault(step, PowerLoss)
        try:
            doing.get(what, getattr(site, what))()
        except PowerLoss:
            pass
        site.disk.before = None
        site.disk.power_loss(random)
        del site.keys[random.randint(self.flushed, site.end_offset) :]
        self.flushed = site.end_offset
        site.restart()

    @invariant()
    def index_is_bounded_and_counted(self) -> None:
        index = self.site.index
        assert self.site.budget.known == len(index)
        assert index.covered <= self.site.end_offset
        ends = [run.end_offset for run in index.runs]
        assert ends == sorted(ends)
        assert not ends or ends[-1] <= index.covered


class AnyDueTimes(AnyIndex):
    """An index with many entries per key, read by ranges of keys."""

    layout = DUE_TIMES

    @initialize()
    def begin_time(self) -> None:
        self.done = 0

    def key(self, random: Random) -> bytes:
        return due(random.randrange(TIMES))

    @rule(time=st.integers(0, TIMES))
    def finish(self, time: int) -> None:
        self.done = max(self.done, time)
        self.site.index.done_below(due(self.done))

    @rule(low=st.integers(0, TIMES), length=st.integers(1, TIMES))
    def read(self, low: int, length: int) -> None:
        expected = [each for each in self.expected if low <= each[0] < low + length]
        assert self.site.due(low, low + length) == expected

    @property
    def expected(self) -> list[tuple[int, int]]:
        return list(self.site.live(self.done))

    @invariant()
    def every_live_entry_is_found_and_no_other(self) -> None:
        assert set(self.expected) <= set(self.site.due()) <= set(self.site.live())
        self.site.index.done_below(due(self.done))  # A start does not restore the lowest key.
        assert self.site.due() == self.expected


class AnyIds(AnyIndex):
    """An index with one entry per key, read by single keys."""

    layout = HASHED

    def key(self, random: Random) -> bytes:
        return blake2b(random.randbytes(8), digest_size=16).digest()

    @invariant()
    def every_live_key_is_found_and_no_other(self) -> None:
        site = self.site
        expected = {site.keys[offset]: offset for offset in range(site.start_offset, site.end_offset)}
        for key in Random(len(self.every_key)).sample(sorted(self.every_key), min(25, len(self.every_key))):
            assert site.offset(key) == expected.get(key)
            assert key not in expected or not site.index.has_none_recent([key]) or site.index.may_be_stored(key)


@pytest.mark.parametrize("machine", [AnyDueTimes, AnyIds])
def test_an_index_agrees_with_its_log_after_any_operations(machine: type[AnyIndex]) -> None:
    options = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
    run_state_machine_as_test(machine, settings=options)
