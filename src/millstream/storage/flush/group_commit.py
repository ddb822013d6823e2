"""Flushes once for all writers that wait for a flush (group commit).

Requests collect while a round is in progress; the next round serves all of them. In a round, the segment of a single
log, or of a log with many bytes, is flushed directly. The small appends of several logs go into the journal, which is
flushed once. Each data directory has one round at a time.

Invariant: a log's flushed_offset increases before its listener is notified, and only after the flush of a file that
contains all its bytes. If the journal fails, it is not retried; the segments of that round are flushed instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage.flush.flush_figures import FlushFigures, FlushKind
from millstream.storage.flush.journal import Journal
from millstream.storage.log.flush_state import FlushCapture, JournalCapture
from millstream.storage.log.log import Log


class GroupCommit:
    """Runs the rounds of one data directory."""

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        figures: FlushFigures,
        *,
        failed: Callable[[Log, OSError], None],
        journal_written: Callable[[Journal], None],
    ) -> None:
        self.journal: Journal | None = None
        """The journal for small appends. Without one, every log is flushed directly."""
        self._disk = disk
        self._workers = workers
        self._figures = figures
        self._failed = failed
        self._journal_written = journal_written
        self._requested: dict[Log, None] = {}
        self._requested_s = self._round_requested_s = 0.0
        """The times of the first request of the next round and of the current one."""
        self._is_scheduled = False
        self._under_way = 0
        """The parts of a round that have not ended; building the round counts as one."""
        self._idle: list[asyncio.Future[None]] = []

    def request(self, log: Log) -> None:
        """Flush everything appended to `log` so far in the next round."""
        if log not in self._requested:
            if not self._requested:
                self._requested_s = self._figures.monotonic_s()
            self._requested[log] = None
            if not self._under_way and not self._is_scheduled:
                self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._begin)

    async def round_over(self) -> None:
        """Wait until the current round, if any, has ended."""
        if self._under_way:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    def _begin(self) -> None:
        self._is_scheduled = False
        requested, self._requested = self._requested, {}
        self._round_requested_s = self._requested_s
        self._under_way = 1  # A writer that gets an error meanwhile may append again; that belongs to the next round.
        direct: list[Log] = []
        small: list[tuple[Log, JournalCapture]] = []
        several = len(requested) > 1 and self.journal is not None and self.journal.failed is None
        for log in requested:
            if not log.flush.begin_round():
                continue
            if several and (journaled := log.flush.capture_for_journal()) is not None:
                small.append((log, journaled))
            else:
                direct.append(log)
        self._figures.round_begun()
        if len(small) == 1:
            direct.append(small.pop()[0])
        if small:
            assert self.journal is not None
            entries = [entry for _, capture in small for entry in capture.entries]
            work = self._workers.run(partial(self.journal.append, entries, self._figures.monotonic_s))
            self._under_way += 1
            work.add_done_callback(partial(self._journal_done, self.journal, small))
        for log in direct:
            self._flush_directly(log)
        self._under_way -= 1
        if not self._under_way:
            self._wake_idle()
            if self._requested:
                self._schedule()

    def _flush_directly(self, log: Log) -> None:
        capture = log.flush.capture()
        self._under_way += 1
        work = self._workers.run(partial(capture.flush, self._disk, self._figures.monotonic_s))
        work.add_done_callback(partial(self._direct_done, log, capture))

    def _journal_done(
        self, journal: Journal, small: Sequence[tuple[Log, JournalCapture]], work: asyncio.Future[float]
    ) -> None:
        error = _outcome(work)
        self._journal_written(journal)
        if isinstance(error, OSError):
            for log, capture in small:
                if capture.generation == log.flush_state.generation:
                    self._flush_directly(log)
            self._part_done()
            return
        if error is None:
            self._figures.committed(FlushKind.JOURNAL, work.result())
            for log, capture in small:
                log.journal_flushed(capture)
        self._part_done()
        for log, _ in small:
            log.report_flush(error)

    def _direct_done(self, log: Log, capture: FlushCapture, work: asyncio.Future[float | None]) -> None:
        error = _outcome(work)
        if isinstance(error, OSError):
            self._failed(log, error)
            self._part_done()
            return
        if error is None:
            self._figures.committed(FlushKind.SEGMENT, work.result())
        if error is None and log.flushed(capture):
            assert log.flushed_offset >= capture.end_offset, (
                "the flushed offset increases before its listener is notified"
            )
        self._part_done()
        log.report_flush(error)

    def _part_done(self) -> None:
        """Begin the next round if the current one has ended.

        The next round runs while the writers of the ended round are answered.
        """
        self._under_way -= 1
        if self._under_way:
            return
        figures = self._figures
        figures.rounds.observe(figures.monotonic_s() - self._round_requested_s)
        self._wake_idle()
        if self._requested and not self._is_scheduled:
            self._begin()

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)


def _outcome(work: asyncio.Future[Any]) -> BaseException | None:
    if work.cancelled():
        return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "the broker is shutting down; the outcome is unknown")
    return work.exception()
