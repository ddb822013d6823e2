"""Replaces segments by a rewritten one atomically: a crash leaves the old or the new segments, never a mixture.

The new segment is written to `<base offset>.log.cleaned` and flushed. Then a sealed file (see `sealed_file`) named
`exchange` is written with the state of the new segment. That file decides: from then on the old segments within its
offsets are void. The new file gets its final name, and the old files are removed. A later checkpoint contains the new
segment, and the `exchange` file becomes meaningless.

A crash before `exchange` is durable leaves the old segments and perhaps a `.cleaned` file, which recovery removes. A
crash afterwards may leave any of the following steps undone. Recovery completes them (`finish`) before it reads the
log. Therefore no new `.cleaned` file is begun while an `exchange` file may exist, even one that was not confirmed as
durable (`settle`).

Index files contain file positions, so those of the replaced segments are removed, also by recovery.
"""

import struct
from enum import Enum
from typing import NamedTuple

from millstream.seams.disk import Disk
from millstream.storage import sealed_file
from millstream.storage.flush.checkpoint import LogState
from millstream.storage.log.segment import INDEX_SUFFIX, SEGMENT_SUFFIX, Segment, SegmentState, segment_name

FILE_NAME = "exchange"
KIND = b"MSTRMEX1"
CLEANED_SUFFIX = ".cleaned"
_STATE = struct.Struct("<qqqqqq")


class SwapStage(Enum):
    """The state of a log's `exchange` file."""

    UNKNOWN = "an invalid or outdated one may exist"
    NONE = "none exists"
    DECIDED = "it is valid, and some files are not in place"
    DONE = "the files are in place, but not in a checkpoint"


class Exchange(NamedTuple):
    """Consecutive segments of a log, and the segment that replaces them."""

    log_path: str
    old: list[Segment]
    new: SegmentState

    @property
    def cleaned_path(self) -> str:
        return cleaned_path(self.log_path, self.new.base_offset)


def cleaned_path(log_path: str, base_offset: int) -> str:
    return f"{log_path}/{segment_name(base_offset)}{CLEANED_SUFFIX}"


def settle(disk: Disk, log_path: str) -> None:
    """Ensure that there is no exchange, not even after a crash (blocking). Raise OSError."""
    if disk.exists(f"{log_path}/{FILE_NAME}"):
        disk.remove(f"{log_path}/{FILE_NAME}")
    disk.flush_directory(log_path)


def decide(disk: Disk, exchange: Exchange) -> None:
    """Make the exchange valid (blocking). After OSError it may be valid or not; see `settle`.

    The old segments keep their open files for readers, and the caller keeps that of the new one.
    """
    retired: list[Segment] = []
    try:
        for segment in exchange.old:
            retired.append(segment)
            segment.retire()
        disk.flush_directory(exchange.log_path)
        sealed_file.write(disk, f"{exchange.log_path}/{FILE_NAME}", KIND, _STATE.pack(*exchange.new))
    except OSError:
        for segment in retired:
            segment.recall()
        raise


def decided(disk: Disk, log_path: str) -> SegmentState | None:
    """The new segment of a decided exchange, even of a finished one (blocking). Raise OSError."""
    payload = sealed_file.read(disk, f"{log_path}/{FILE_NAME}", KIND)
    return SegmentState(*_STATE.unpack(payload)) if payload and len(payload) == _STATE.size else None


def finish(disk: Disk, log_path: str) -> SegmentState | None:
    """Complete a decided exchange and flush it (blocking). Return the new segment, or None if there is none.

    It may be repeated after OSError and after a crash.
    """
    new = decided(disk, log_path)
    if new is None:
        return None
    names = disk.list(log_path)
    name = segment_name(new.base_offset)
    old = [segment_name(base) for base in bases_of(names) if new.base_offset < base < new.next_offset]
    for gone in (*old, *(_index_name(segment) for segment in (name, *old))):
        if gone in names:
            disk.remove(f"{log_path}/{gone}")
    if name + CLEANED_SUFFIX in names:
        disk.rename(f"{log_path}/{name}{CLEANED_SUFFIX}", f"{log_path}/{name}")
    disk.flush_directory(log_path)
    return new


def bases_of(names: list[str]) -> list[int]:
    """The base offsets of the segments among the file names of a log's directory, in ascending order."""
    return sorted(int(name.removesuffix(SEGMENT_SUFFIX)) for name in names if name.endswith(SEGMENT_SUFFIX))


def merged(known: LogState, new: SegmentState) -> tuple[SegmentState, ...]:
    """Return the checkpoint's segments, with `new` in place of those that compaction replaced.

    The checkpoint may be older than the compaction.
    """
    first = known.segments[0].base_offset if known.segments else known.end_offset
    if new.next_offset <= first:
        return known.segments  # The log start has moved beyond the new segment.
    others = [state for state in known.segments if not new.base_offset <= state.base_offset < new.next_offset]
    return tuple(sorted([*others, new]))


def _index_name(segment: str) -> str:
    return segment.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
