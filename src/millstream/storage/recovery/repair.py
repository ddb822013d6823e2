"""Repairs a log after a failed write or flush, while the broker runs.

After a failed write, garbage may follow the known end: the file is truncated to that end and flushed.

After a failed flush, it is unknown which bytes are on stable storage. A second flush proves nothing, because the kernel
may have dropped the dirty pages. So the unflushed part is read back, verified batch by batch, and completed from the
journal. It is written to a new file, which is flushed before its name replaces or follows the old one:
  - A segment without any flushed bytes is replaced by its copy, under the same name.
  - Of any other segment the flushed part stays, and the rest becomes a new segment.
A crash leaves a `.new` file, which recovery removes, or the copy beside the old segment. Then recovery reads the old
segment only up to the begin of the copy.
"""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.model.ids import Offset
from millstream.seams.disk import Disk, DiskFile
from millstream.storage.flush.journal import JournalEntry
from millstream.storage.log.segment import NO_TIME, FlushMark, Segment, SegmentState, segment_name
from millstream.storage.recovery.log_recovery import follow
from millstream.storage.sealed_file import UNFINISHED

_COPY_BYTES = 1024 * 1024


class Rebuilt(NamedTuple):
    """The segments that now make up the log, all flushed."""

    segments: list[SegmentState]
    end_offset: Offset


class DataLossError(Exception):
    """Acknowledged batches are neither in the segment nor in the journal."""


def cut_back(segment: Segment) -> None:
    """Truncate the bytes that a failed write left after the segment's end. Blocks. Raises OSError if the disk fails."""
    segment.open().truncate(segment.size_bytes)
    segment.flush()


def rebuild(
    disk: Disk, path: str, segments: Sequence[Segment], entries: Sequence[JournalEntry], flushed_offset: int
) -> Rebuilt:
    """Rewrite the unflushed parts of a log into new files (blocking). Raise OSError; then it may be repeated.

    Raise DataLossError if some data before `flushed_offset` cannot be read back; then the files stay unchanged.
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
        state = _copy_rest(disk, path, segment, patches, flushed_offset)
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
    disk: Disk, path: str, segment: Segment, patches: Sequence[JournalEntry], flushed_offset: int
) -> SegmentState:
    """Write the unflushed part of `segment` to a new file, as far as it is intact."""
    base, position = segment.flushed.offset, segment.flushed.position
    target = f"{path}/{segment_name(base)}"
    source = disk.open(segment.path)
    copy = disk.open(target + UNFINISHED, create=True)
    copy.truncate(0)
    written, time = 0, NO_TIME
    offset, time_offset = int(base), int(base)
    waiting, waiting_bytes = list[bytes](), 0
    for found in follow(
        source,
        end=segment.size_bytes,
        position=position,
        offset=offset,
        patches=patches,
        stop_offset=segment.next_offset,
    ):
        header = found.header
        data = found.patch if found.patch is not None else source.read(header.size_bytes, position=found.position)
        waiting.append(data)
        waiting_bytes += len(data)
        offset = header.next_offset
        if header.max_timestamp > time:
            time, time_offset = header.max_timestamp, header.last_offset
        if waiting_bytes >= _COPY_BYTES:
            written = _write(copy, waiting, written)
            waiting, waiting_bytes = [], 0
    if offset < min(flushed_offset, segment.next_offset):
        raise DataLossError(
            f"{segment.path}: acknowledged up to offset {flushed_offset}, but after a failed flush only {offset} can "
            "be read back"
        )
    written = _write(copy, waiting, written)
    copy.flush()
    copy.close()
    source.close()
    disk.rename(target + UNFINISHED, target)
    return FlushMark(Offset(offset), written, time, Offset(time_offset)).state(base, segment.created_ms)


def _write(file: DiskFile, parts: Sequence[bytes], position: int) -> int:
    if parts:
        file.write(parts, position)
    return position + sum(map(len, parts))
