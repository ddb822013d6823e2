"""Tests that writes, flushes and rounds of group commit are measured, and when a disk counts as slow."""

import asyncio
import errno
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from builders.logs import SMALL, append, commit, key, open_store, run
from millstream.model.errors import MillstreamError
from millstream.node.data_findings import slow_disks
from millstream.node.data_metrics import disk_metrics
from millstream.process.metrics import Histogram, render
from millstream.storage.flush.flush_figures import SLOW_FLUSHES_MIN, FlushFigures, FlushKind
from millstream.storage.log.log import Log
from millstream.storage.store import FlushPolicy, LogStore
from millstream.testing.simulated.clock import ManualClock
from millstream.testing.simulated.disk import DiskOperation, SimulatedDisk

DURATIONS_MS = {".log": 30, "journal": 400, "checkpoint": 2_000}


class Measured:
    """A store on a disk whose flushes take a fixed time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.store: LogStore
        self.logs: Sequence[Log] = ()

    async def open(self, logs: int, policy: FlushPolicy = FlushPolicy.ALWAYS) -> None:
        """Create logs that have one batch each. What is measured until then does not count."""
        self.store = await open_store(self.disk, clock=self.clock, policy=policy)
        self.logs = [await self.store.create(key(number), SMALL) for number in range(logs)]
        for log in self.logs:
            await self.append([log])
        await self.store.checkpoint()
        self.disk.before = self.before
        self._first = {name: (histogram.count, histogram.sum) for name, histogram in self._histograms().items()}

    def _histograms(self) -> dict[str, Histogram]:
        (directory,) = self.store.data_directories
        figures = directory.figures
        own = {"appends": figures.appends, "rounds": figures.rounds, "batches": figures.round_batches}
        return own | {str(kind): durations for kind, durations in figures.flushes.items()}

    def since_open(self, name: str) -> tuple[int, float]:
        """Return the number and the sum of the values since `open`."""
        histogram, (count, total) = self._histograms()[name], self._first[name]
        return histogram.count - count, round(histogram.sum - total, 6)

    def before(self, operation: DiskOperation) -> None:
        if operation.kind == "flush":
            for name, duration_ms in DURATIONS_MS.items():
                if name in operation.path:
                    self.clock.advance_ms(duration_ms)

    async def append(self, logs: Sequence[Log], batches: int = 1) -> None:
        waiting = []
        for log in logs:
            for _ in range(batches):
                append(log, [b"value"])
                waiting.append(commit(log))
        await asyncio.gather(*(each for each in waiting if each is not None))


def test_group_commit_of_one_log_is_counted_as_one_segment_flush() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(1)
        await measured.append(measured.logs, batches=10)
        assert measured.since_open("segment") == (1, 0.03)
        assert measured.since_open("rounds") == (1, 0.03)
        assert measured.since_open("batches") == (1, 10)
        assert measured.since_open("appends") == (10, 0)
        assert measured.since_open("journal") == (0, 0)

    run(story())


def test_a_round_of_several_logs_is_measured_as_one_flush_of_the_journal() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(4)
        (directory,) = measured.store.data_directories
        size = directory.journal_bytes
        await measured.append(measured.logs, batches=2)
        assert measured.since_open("journal") == (1, 0.4)
        assert measured.since_open("rounds") == (1, 0.4)
        assert measured.since_open("batches") == (1, 8)
        assert measured.since_open("segment") == (0, 0)
        assert directory.journal_bytes > size

    run(story())


def test_a_request_during_a_round_waits_for_two_flushes() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(1)
        (log,) = measured.logs
        append(log, [b"value"])
        first = commit(log)
        await asyncio.sleep(0)
        append(log, [b"value"])
        second = commit(log)
        assert first is not None
        assert second is not None
        before_s = measured.clock.monotonic_s()
        await second
        assert measured.clock.monotonic_s() - before_s == pytest.approx(0.06)
        assert measured.since_open("rounds") == (2, 0.09), "the second request waited for the first round too"

    run(story())


def test_checkpoints_are_measured_with_the_segments_that_they_flush() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(3)
        await measured.append(measured.logs)
        await measured.store.checkpoint()
        assert measured.since_open("checkpoint") == (1, 2)
        assert measured.since_open("segment") == (3, 0.09)
        await measured.store.checkpoint()
        assert measured.since_open("segment") == (3, 0.09), "nothing was left to flush"

    run(story())


def test_a_failed_flush_ends_its_round_and_is_no_duration() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(1)

        def refuse(operation: DiskOperation) -> None:
            if operation.kind == "flush":
                raise OSError(errno.EIO, "refused", operation.path)

        measured.disk.before = refuse
        with pytest.raises(MillstreamError):
            await measured.append(measured.logs)
        assert measured.since_open("rounds") == (1, 0)
        assert measured.since_open("segment") == (0, 0)

    run(story())


@pytest.mark.parametrize("policy", [FlushPolicy.OS, FlushPolicy.INTERVAL])
def test_writes_are_not_measured_without_group_commit(policy: FlushPolicy) -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(1, policy)
        await measured.append(measured.logs, batches=5)
        assert (
            measured.since_open("appends") == measured.since_open("rounds") == measured.since_open("batches") == (0, 0)
        )

    run(story())


def test_the_metrics_name_the_directory_and_the_kind_of_the_flush() -> None:
    async def story() -> None:
        measured = Measured()
        await measured.open(1)
        await measured.append(measured.logs)
        lines = render(disk_metrics(measured.store)).decode().splitlines()
        for expected in (
            'millstream_append_seconds_count{directory="/data"} 2',
            'millstream_flush_seconds_count{directory="/data"} 2',
            'millstream_group_commit_batches_bucket{directory="/data",le="1"} 2',
            'millstream_fsync_seconds_count{directory="/data",kind="segment"} 2',
            'millstream_fsync_seconds_bucket{directory="/data",kind="segment",le="0.025"} 1',
            'millstream_fsync_seconds_count{directory="/data",kind="journal"} 0',
            "millstream_cold_read_seconds_count 0",
        ):
            assert expected in lines
        assert any(line.startswith('millstream_journal_bytes{directory="/data"} ') for line in lines)

    run(story())


class Minutes:
    """Figures that get flushes and are sampled every second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.figures = FlushFigures(self.clock.monotonic_s, Histogram())

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance_ms(1_000)
            self.figures.sample()

    def flush(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.figures.committed(FlushKind.SEGMENT, seconds)

    @property
    def warnings(self) -> list[str]:
        store: Any = SimpleNamespace(data_directories=[SimpleNamespace(path="/data", figures=self.figures)])
        return [finding.text for finding in slow_disks(store) if not finding.is_problem]


@pytest.mark.parametrize(
    ("slow", "fast", "is_slow"),
    [
        (SLOW_FLUSHES_MIN, 0, True),
        (SLOW_FLUSHES_MIN - 1, 0, False),
        (SLOW_FLUSHES_MIN, 1_000, False),
        (20, 1_900, True),
        (19, 1_900, False),
        (0, 100, False),
    ],
)
def test_a_disk_is_slow_when_the_99th_percentile_is_above_the_limit(slow: int, fast: int, is_slow: bool) -> None:
    minutes = Minutes()
    minutes.flush(slow, 0.51)
    minutes.flush(fast, 0.5)
    assert minutes.figures.recent().is_slow_disk is is_slow
    assert len(minutes.warnings) == is_slow


def test_the_warning_names_the_directory_and_ends_after_a_minute() -> None:
    minutes = Minutes()
    minutes.wait(300)
    minutes.flush(5, 2.0)
    minutes.flush(5, 0.1)
    minutes.wait(50)
    assert minutes.warnings == [
        "data directory /data is slow: 5 of 10 flushes in the last minute took more than 0.5 s,"
        " and producers waited for them; check the disk and its other load"
    ]
    minutes.wait(21)
    assert minutes.warnings == []


def test_a_flush_of_nothing_does_not_count() -> None:
    minutes = Minutes()
    minutes.figures.committed(FlushKind.SEGMENT, None)
    assert minutes.figures.recent().total == minutes.figures.flushes[FlushKind.SEGMENT].count == 0
