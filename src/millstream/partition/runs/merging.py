"""Merges several sorted runs into one, in steps of bounded work."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from millstream.partition.runs.run import SortedRun
from millstream.partition.runs.run_writer import RunWriter
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers

_MERGED = 4
"""Number of runs that are merged into one. It keeps the runs few, and each entry is rewritten only a few times."""

RUN_ENTRIES_MAX = 1_000_000
_STEP_BLOCKS = 4
"""Blocks of each run that one step of a merge reads, which takes a few milliseconds."""


def mergeable(runs: tuple[SortedRun, ...], span_ms: int | None) -> tuple[SortedRun, ...] | None:
    """Return the newest adjacent runs of similar size whose sum is within the limit, or None.

    With `span_ms`, all their entries must have been added within that time.
    """
    for first in range(len(runs) - _MERGED, -1, -1):
        some = runs[first : first + _MERGED]
        count = sum(run.count for run in some)
        is_alike = 2 * max(run.count for run in some) <= count <= RUN_ENTRIES_MAX
        if is_alike and (span_ms is None or some[-1].newest_ms - some[0].oldest_ms <= span_ms):
            return some
    return None


async def write_merged(
    disk: Disk, workers: Workers, runs: Sequence[SortedRun], run: SortedRun, is_over: Callable[[], bool]
) -> bool:
    """Write `run` from several runs, step by step in workers. False if `is_over` ended it early. Raises OSError."""
    writer = await workers.run(partial(RunWriter, disk, run.path, run.layout, run.count))
    is_whole = False
    try:
        steps = merge(runs, writer)
        while await workers.run(partial(_step, steps)):
            if is_over():
                return False
        run.written(await workers.run(writer.finish))
        await workers.run(partial(disk.flush_directory, run.path.rpartition("/")[0]))
        is_whole = True
    finally:
        if not is_whole:
            await workers.run(writer.discard)
    return True


def _step(steps: Iterator[None]) -> bool:
    """Take one more step. False if there was none left."""
    return next(steps, _OVER) is not _OVER


_OVER = object()


def merge(runs: Sequence[SortedRun], writer: RunWriter) -> Iterator[None]:
    """Write the entries of several runs, given oldest first. Of entries with the same identity, the newest is kept.
    Blocking.

    Each step does bounded work. The caller finishes the writer.
    """
    identity_bytes = runs[0].layout.identity_bytes
    heads = [_Head(run) for run in runs]
    while heads := [head for head in heads if head.more()]:
        # Every buffered entry up to the lowest of the buffers' last entries can be written: unread ones are higher.
        limit = min((head.last for head in heads if head.left), default=None)
        ready = [head.take(limit) for head in heads]
        newest = {entry[:identity_bytes]: entry for entry in chain.from_iterable(ready)}
        writer.add([newest[identity] for identity in sorted(newest)])
        yield


class _Head:
    """The position up to which one run has been merged."""

    def __init__(self, run: SortedRun) -> None:
        self._run = run
        self._identity_bytes = run.layout.identity_bytes
        self._block = 0
        self._entries: list[bytes] = []

    @property
    def left(self) -> bool:
        """True if the run has unread blocks."""
        return self._block < self._run.blocks

    @property
    def last(self) -> bytes:
        return self._entries[-1][: self._identity_bytes] if self._entries else b""

    def more(self) -> bool:
        """Read until entries are buffered. False if the run has no more entries."""
        while not self._entries and self.left:
            for _ in range(_STEP_BLOCKS):
                if self.left:
                    self._entries += self._run.live_entries(self._run.block(self._block))
                    self._block += 1
        return bool(self._entries)

    def take(self, limit: bytes | None) -> list[bytes]:
        """Remove and return the buffered entries up to a limit, or all."""
        entries, identity_bytes = self._entries, self._identity_bytes
        count = len(entries) if limit is None else sum(entry[:identity_bytes] <= limit for entry in entries)
        self._entries = entries[count:]
        return entries[:count]
