"""Writing what an index knows: a run of what was in memory, and the list of runs; and making one run of several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from millstream.partition.message_ids.keys import IndexedMessage
from millstream.partition.message_ids.run import IdRun, RunWriter, merge, packed
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage.cleaning.file_removal import remove_all
from millstream.storage.log.log import Log

NAME = "ids"


class RunSave(NamedTuple):
    """What is to be written: `entries`, as `run`, then the list of runs, which `pack` gives; `gone` is then removed."""

    log: Log
    entries: Mapping[bytes, IndexedMessage]
    run: IdRun | None
    covered: int
    pack: Callable[[], bytes]
    gone: Sequence[IdRun]

    def write(self) -> None:
        """Blocking. Raises OSError; the list of runs is then the one before, or this one."""
        disk, path = self.log.files.disk, self.log.path
        if self.run is not None:
            writer = RunWriter(disk, self.run.path, len(self.entries))
            try:
                writer.add(packed(self.entries.items()))
                _finish(writer, self.run)
            except OSError:
                writer.discard()
                raise
            # Before it is named, since of two names that are not flushed any one may be lost.
            disk.flush_directory(path)
        self.log.save_snapshot(NAME, self.covered, self.pack())
        for run in self.gone:
            run.forget()
        with suppress(OSError):  # The next start removes what nobody names.
            remove_all(disk, [run.path for run in self.gone])


def _finish(writer: RunWriter, run: IdRun) -> None:
    writer.finish()
    run.filled(writer.count, writer.filter)


async def write_merged(
    disk: Disk, workers: Workers, runs: Sequence[IdRun], run: IdRun, is_over: Callable[[], bool]
) -> bool:
    """Make `run` of several, step by step in workers; False when `is_over` told to give up. Raises OSError."""
    writer = await workers.run(partial(RunWriter, disk, run.path, run.count))
    is_whole = False
    try:
        steps = merge(runs, writer)
        while await workers.run(partial(_step, steps)):
            if is_over():
                return False
        await workers.run(partial(_finish, writer, run))
        await workers.run(partial(disk.flush_directory, run.path.rpartition("/")[0]))
        is_whole = True
    finally:
        if not is_whole:
            await workers.run(writer.discard)
    return True


def _step(steps: Iterator[None]) -> bool:
    """Whether there was one more."""
    return next(steps, _OVER) is not _OVER


_OVER = object()
