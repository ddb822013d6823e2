"""Group commit: one flush serves all who wait for one.

Writers that want to know their appends durable are gathered until the flush that is under way has ended; then one
round is begun for all of them. In a round, one busy log, or one with many bytes, has its segment flushed; the small
appends of several logs go into the journal, which is flushed once. One round at a time for each data directory.

Invariant: a log's durable_offset rises before its waiters are answered, and only after the flush of a file that has all
its bytes. If the journal fails, nothing is tried again on it; the segments of that round are flushed instead.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage.flush.flush_round import FlushRound
from millstream.storage.flush.journal import Journal, JournalEntry
from millstream.storage.flush.log_flush import FlushCapture, take_pending
from millstream.storage.log.log import Log
from millstream.storage.log.segment import Segment


class _Journaled(NamedTuple):
    """How far a log had got whose appends went into the journal."""

    log: Log
    commit: FlushRound
    generation: int
    end_offset: int
    place: tuple[Segment, int]


class GroupCommit:
    """The rounds of one data directory."""

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        *,
        failed: Callable[[Log, OSError], None],
        journal_written: Callable[[Journal], None],
    ) -> None:
        self.journal: Journal | None = None
        """Where small appends go; without one, every log is flushed by itself."""
        self._disk = disk
        self._workers = workers
        self._failed = failed
        self._journal_written = journal_written
        self._gathered: dict[Log, FlushRound] = {}
        self._is_scheduled = False
        self._under_way = 0
        self._idle: list[asyncio.Future[None]] = []

    def request(self, log: Log) -> FlushRound:
        """Over when all that has been appended to `log` so far is durable; KAFKA_STORAGE_ERROR if that failed."""
        commit = self._gathered.get(log)
        if commit is None:
            commit = self._gathered[log] = FlushRound()
            if not self._under_way and not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._begin)
        return commit

    def abandon(self, log: Log, error: MillstreamError) -> None:
        """What the next round was to make durable of `log` is gone."""
        commit = self._gathered.pop(log, None)
        if commit is not None:
            commit.settle(error)

    async def round_over(self) -> None:
        """Wait until the round that is under way, if one is, has ended."""
        if self._under_way:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    def _begin(self) -> None:
        self._is_scheduled = False
        gathered, self._gathered = self._gathered, {}
        direct: list[tuple[FlushCapture, FlushRound]] = []
        small: list[_Journaled] = []
        entries: list[JournalEntry] = []
        refused: list[tuple[FlushRound, MillstreamError]] = []
        several = len(gathered) > 1 and self.journal is not None and self.journal.failed is None
        for log, commit in gathered.items():
            try:
                log.write_buffer.write()
            except MillstreamError as error:
                refused.append((commit, error))
                continue
            if log.is_fenced or log.quarantined is not None:
                refused.append((commit, log.storage_error(log.broken or "quarantined")))
                continue
            pending = take_pending(log)
            if several and pending:
                end = log.segments[-1].end
                small.append(_Journaled(log, commit, log.generation, end.offset, (log.segments[-1], end.position)))
                entries += pending
            else:
                direct.append((FlushCapture.of(log), commit))
        if len(small) == 1:
            direct.append((FlushCapture.of(small[0].log), small[0].commit))
            small = []
        self._under_way = len(direct) + bool(small)
        if small:
            assert self.journal is not None
            work = self._workers.run(partial(self.journal.append, entries))
            work.add_done_callback(partial(self._journal_done, self.journal, small))
        for capture, commit in direct:
            self._flush_directly(capture, commit)
        for commit, refusal in refused:
            commit.settle(refusal)  # Not before: who is answered may write again, and belongs to the next round.

    def _flush_directly(self, capture: FlushCapture, commit: FlushRound) -> None:
        work = self._workers.run(partial(capture.flush, self._disk))
        work.add_done_callback(partial(self._direct_done, capture, commit))

    def _journal_done(self, journal: Journal, small: Sequence["_Journaled"], work: asyncio.Future[None]) -> None:
        error = _outcome(work)
        self._journal_written(journal)
        outcomes: list[tuple[FlushRound, BaseException | None]] = []
        for log, commit, generation, end_offset, place in small:
            if log.generation != generation:
                outcomes.append((commit, _repaired(log)))
            elif isinstance(error, OSError):
                self._under_way += 1
                self._flush_directly(FlushCapture.of(log), commit)
            else:
                if error is None:
                    log.advance(end_offset, place)
                outcomes.append((commit, error))
        self._part_done()
        for commit, outcome in outcomes:
            commit.settle(outcome)

    def _direct_done(self, capture: FlushCapture, commit: FlushRound, work: asyncio.Future[None]) -> None:
        error, log = _outcome(work), capture.log
        if isinstance(error, OSError):
            self._failed(log, error)
            error = log.storage_error(error)
        elif error is None and not capture.conclude():
            error = _repaired(log)
        self._part_done()
        commit.settle(error)

    def _part_done(self) -> None:
        """Begins the next round, which is flushed while those of the last one are being answered."""
        self._under_way -= 1
        if self._under_way:
            return
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)
        if self._gathered and not self._is_scheduled:
            self._begin()


def _outcome(work: asyncio.Future[None]) -> BaseException | None:
    if work.cancelled():
        return MillstreamError(ErrorCode.REQUEST_TIMED_OUT, "the broker is being stopped; the outcome is unknown")
    return work.exception()


def _repaired(log: Log) -> MillstreamError:
    return log.storage_error(log.broken or "the log was repaired meanwhile")
