"""Making a log whole again after the disk refused a write or a flush, while the broker runs.

After a failed write, rubbish may lie behind the known end: the file is cut back to it and flushed.

After a failed flush, nobody knows what of the file is on stable storage, and a second flush proves nothing: the kernel
may have dropped the dirty pages. So the unflushed part is read back, checked batch by batch, helped out with what the
journal has of it, and written into a new file, which is flushed before its name replaces or follows the old one:
  - a segment of which nothing had been flushed is replaced by its copy, under the same name;
  - of another, the flushed part stays, and the rest becomes a segment of its own.
A crash on the way leaves a `.new` file, which recovery removes, or the copy beside the old segment, which recovery
reads only up to where the copy begins.
"""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.seams.disk import Disk, DiskFile
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.segment import NO_TIME, Segment, SegmentState, segment_name
from millstream.storage.recovery.log_recovery import follow
from millstream.storage.sealed_file import UNFINISHED

_COPY_BYTES = 1024 * 1024


class Rebuilt(NamedTuple):
    """The segments that now make up the log, all flushed."""

    segments: list[SegmentState]
    end_offset: int


class DataLossError(Exception):
    """Acknowledged batches are neither in the segment nor in the journal."""


def cut_back(segment: Segment) -> None:
    """Drop what a failed write left behind the segment's end (blocking); raises OSError."""
    segment.open().truncate(segment.size_bytes)
    segment.flush()


def rebuild(
    disk: Disk, path: str, segments: Sequence[Segment], entries: Sequence[JournalEntry], durable_offset: int
) -> Rebuilt:
    """Rewrite the unflushed parts of a log into new files (blocking); raises OSError, and may then be repeated.

    Raises DataLossError, and leaves the files as they are, when something before `durable_offset` is no longer to be
    had.
    """
    states: list[SegmentState] = []
    end_offset = segments[0].base_offset
    for segment in segments:
        if segment.base_offset != end_offset:
            break
        flushed, end = segment.flushed, segment.end
        if flushed.position:
            states.append(segment.state())
            end_offset = flushed.offset
        if flushed.position == end.position:
            if not flushed.position:
                states.append(segment.state())
            continue
        patches = sorted((e for e in entries if e.segment_base == segment.base_offset), key=lambda e: e.position)
        state = _copy_rest(disk, path, segment, patches, durable_offset)
        states.append(state)
        end_offset = state.next_offset
        if end_offset != end.offset:
            break
    disk.flush_directory(path)
    kept = {segment_name(state.base_offset) for state in states}
    for segment in segments:
        if segment.base_offset >= end_offset and segment_name(segment.base_offset) not in kept:
            disk.remove(segment.path)
    disk.flush_directory(path)
    return Rebuilt(states, end_offset)


def _copy_rest(
    disk: Disk, path: str, segment: Segment, patches: Sequence[JournalEntry], durable_offset: int
) -> SegmentState:
    """Write what follows the flushed part of `segment` to a file of its own, as far as it is whole."""
    offset, position = segment.flushed.offset, segment.flushed.position
    target = f"{path}/{segment_name(offset)}"
    source = disk.open(segment.path)
    copy = disk.open(target + UNFINISHED, create=True)
    copy.truncate(0)
    written, time, time_offset, base = 0, NO_TIME, offset, offset
    waiting: list[bytes] = []
    waiting_bytes = 0
    for found in follow(source, segment.size_bytes, position, offset, patches, segment.next_offset):
        header = found.header
        data = found.patch if found.patch is not None else source.read(header.size_bytes, found.position)
        waiting.append(data)
        waiting_bytes += len(data)
        offset = header.next_offset
        if header.max_timestamp > time:
            time, time_offset = header.max_timestamp, header.last_offset
        if waiting_bytes >= _COPY_BYTES:
            written = _write(copy, waiting, written)
            waiting, waiting_bytes = [], 0
    if offset < min(durable_offset, segment.next_offset):
        raise DataLossError(
            f"{segment.path}: acknowledged up to offset {durable_offset}, but after a failed flush only {offset} can "
            "be read back"
        )
    written = _write(copy, waiting, written)
    copy.flush()
    copy.close()
    source.close()
    disk.rename(target + UNFINISHED, target)
    return SegmentState(base, offset, written, time, time_offset, segment.created_ms)


def _write(file: DiskFile, parts: Sequence[bytes], position: int) -> int:
    if parts:
        file.write(parts, position)
    return position + sum(map(len, parts))
