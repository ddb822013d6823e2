"""Rebuilds a run of message ids that is lost or damaged, while the broker serves the partition.

The log has the ids of its batches, and the readable blocks of the run have ids of messages that the log has removed.
Both become new runs, which replace the old one. An id is lost only if it was in a damaged block and its message is no
longer in the log, for example after a compaction. The number of lost ids is an upper bound, because damaged blocks may
also have had ids of expired messages.

A slice reads a bounded number of ids from the log, so memory stays bounded. A crash leaves the old run in the list, and
its next reader finds the damage again. Until the run is replaced, the broker refuses the ids that it may have.
"""

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.replay import entries_of
from millstream.partition.runs.run import SortedRun
from millstream.partition.runs.run_writer import RunWriter
from millstream.records.header import ANY_IDS
from millstream.seams.disk import Disk
from millstream.seams.workers import Workers
from millstream.storage.log.log import Log

SLICE_ENTRIES = 50_000
"""Ids that one slice reads from the log. Each takes about 200 bytes."""

SLICE_BATCHES = 10_000

_log = logging.getLogger(__name__)


class _Slice(Struct, frozen=True):
    """Ids of the log's batches up to an offset."""

    entries: Mapping[bytes, bytes]
    next_offset: int


async def rebuild_run(
    index: IdIndex, log: Log, run: SortedRun, workers: Workers, *, start_offset: int, is_over: Callable[[], bool]
) -> int | None:
    """Write the ids of a run again, from `start_offset` of the log on, and replace the run in the index.

    Returns the number of ids that may be lost, or None if `is_over` or a truncation of the log ended it early. Raises
    OSError and the errors of a log read. The caller writes the list of runs afterwards.
    """
    disk, truncations = log.files.disk, log.truncations
    made: list[SortedRun] = []
    is_whole = False
    try:
        offset = Offset(max(start_offset, log.start_offset))
        while offset < run.end_offset:
            found = await workers.run(partial(_read_slice, log, offset, end_offset=run.end_offset))
            offset = Offset(found.next_offset)
            if found.entries:
                made.append(index.begin_rebuild(run, len(found.entries), end_offset=offset))
                await workers.run(partial(_write, disk, made[-1], found.entries))
            if is_over() or log.truncations != truncations:
                return None
        made.append(index.begin_rebuild(run, run.count, end_offset=run.end_offset))
        damaged_count = await workers.run(partial(_salvage, disk, made[-1], run))
        lost = max(0, damaged_count - await workers.run(partial(_only_in_log, made[:-1], made[-1])))
        await workers.run(partial(disk.flush_directory, log.path))
        is_whole = log.truncations == truncations
    finally:
        if not is_whole:
            index.discarded(made)
    if not is_whole:
        return None
    index.rebuilt(run, tuple(made))
    counts = {"from_log": sum(each.count for each in made[:-1]), "from_run": made[-1].count, "lost": lost}
    level = logging.ERROR if lost else logging.WARNING
    _log.log(level, "message ids rebuilt", extra={**log.label.fields, "path": run.path, "ids": run.count, **counts})
    return lost


def _read_slice(log: Log, offset: Offset, *, end_offset: int) -> _Slice:
    entries: dict[bytes, bytes] = {}
    for number, header in enumerate(log.scan.headers_from(offset)):
        if header.base_offset >= end_offset:
            break
        if header.attributes & ANY_IDS:
            entries.update(entries_of(log, header))
        offset = Offset(header.next_offset)
        if len(entries) >= SLICE_ENTRIES or number >= SLICE_BATCHES:
            return _Slice(entries, offset)
    return _Slice(entries, end_offset)


def _write(disk: Disk, run: SortedRun, entries: Mapping[bytes, bytes]) -> None:
    _write_blocks(disk, run, [sorted(identity + rest for identity, rest in entries.items())], len(entries))


def _salvage(disk: Disk, run: SortedRun, damaged: SortedRun) -> int:
    """Write the entries of the blocks of a damaged run that can be read. Return the number of the other entries."""
    read: list[int] = []
    _write_blocks(disk, run, _readable_blocks(damaged, read), damaged.count)
    return damaged.count - sum(read)


def _only_in_log(of_log: Sequence[SortedRun], salvaged: SortedRun) -> int:
    """Count the ids of the log that the readable blocks do not have."""
    blocks = (run.layout.split(run.block(number)) for run in of_log for number in range(run.blocks))
    keys = (entry[: salvaged.layout.key_bytes] for block in blocks for entry in block)
    return sum(not salvaged.count or salvaged.find(key) is None for key in keys)


def _readable_blocks(damaged: SortedRun, read: list[int]) -> Iterator[list[bytes]]:
    """Yield the live entries of each readable block. Add the number of all its entries to `read`."""
    for number in range(damaged.blocks):
        try:
            block = damaged.block(number)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        except MillstreamError:
            continue
        else:
            read.append(len(block) // damaged.layout.entry_bytes)
            yield damaged.live_entries(block)


def _write_blocks(disk: Disk, run: SortedRun, blocks: Iterable[list[bytes]], entries_max: int) -> None:
    writer = RunWriter(disk, run.path, run.layout, entries_max)
    try:
        for block in blocks:
            writer.add(block)
        run.written(writer.finish())
    except BaseException:
        writer.discard()
        raise
