"""Measures the writes and flushes of one data directory, and the reads that wait for its disk.

Workers return the durations of their flushes, and the event loop observes them, because a histogram has one writer.

Invariant: no sample is older than the latest one that is at least `WINDOW_S` old.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from millstream.process.metrics import COUNT_BOUNDS, Histogram

SLOW_FLUSH_S = 0.5
"""A flush that takes longer is slow. Acknowledgements wait for it."""

SLOW_SHARE = 0.01
SLOW_FLUSHES_MIN = 3
"""Fewer slow flushes within the window are an outlier, not a slow disk."""

WINDOW_S = 60.0
_SAMPLED_EVERY_S = 10.0


class FlushKind(StrEnum):
    """The kind of the files that a flush makes durable."""

    SEGMENT = "segment"
    JOURNAL = "journal"
    CHECKPOINT = "checkpoint"


class SlowFlushes(NamedTuple):
    """The flushes of group commit within the last minute."""

    total: int
    slow: int

    @property
    def is_slow_disk(self) -> bool:
        """True if the 99th percentile of the durations is above `SLOW_FLUSH_S`."""
        return self.slow >= SLOW_FLUSHES_MIN and self.slow > SLOW_SHARE * self.total


class _Sample(NamedTuple):
    at_s: float
    total: int
    slow: int


class FlushFigures:
    """The figures of one data directory since the start."""

    def __init__(self, monotonic_s: Callable[[], float], cold_reads: Histogram) -> None:
        """All directories of a store share `cold_reads`."""
        self.monotonic_s = monotonic_s
        self.cold_reads = cold_reads
        self.appends = Histogram()
        """The durations of writes to segments under group commit, where one write may contain many batches."""
        self.rounds = Histogram()
        """The durations of the rounds of group commit, from the first request to the result."""
        self.round_batches = Histogram(COUNT_BOUNDS)
        self.flushes = {kind: Histogram() for kind in FlushKind}
        self._unflushed_batches = 0
        self._committed = self._slow = 0
        self._samples = deque([_Sample(monotonic_s(), 0, 0)])

    def appended(self, seconds: float, *, batches: int) -> None:
        """Observe a write to a segment, whose batches the next round of group commit flushes."""
        self.appends.observe(seconds)
        self._unflushed_batches += batches

    def round_begun(self) -> None:
        """Observe the number of batches that a round of group commit flushes."""
        batches, self._unflushed_batches = self._unflushed_batches, 0
        if batches:
            self.round_batches.observe(batches)

    def committed(self, kind: FlushKind, seconds: float | None) -> None:
        """Observe a flush that acknowledgements waited for. None means that nothing was unflushed."""
        if seconds is not None:
            self.flushes[kind].observe(seconds)
            self._committed += 1
            self._slow += seconds > SLOW_FLUSH_S

    def sample(self) -> None:
        """Store the counts of flushes from time to time, for `recent`. The caller calls it periodically."""
        now_s, samples = self.monotonic_s(), self._samples
        if now_s - samples[-1].at_s < _SAMPLED_EVERY_S:
            return
        samples.append(_Sample(now_s, self._committed, self._slow))
        while samples[1].at_s <= now_s - WINDOW_S:
            samples.popleft()
        assert len(samples) < 2 or samples[1].at_s > now_s - WINDOW_S, "older samples are dropped"

    def recent(self) -> SlowFlushes:
        """Return the flushes of group commit within about the last minute."""
        first = self._samples[0]
        return SlowFlushes(self._committed - first.total, self._slow - first.slow)
