"""Putting a rewritten run of segments in the place of the old ones, so that a crash leaves either and never a mixture.

The new segment is written to `<base offset>.log.cleaned` and flushed. Then a sealed file (see `sealed_file`),
`exchange`, says what it is: the numbers that a checkpoint has of a segment. That is the moment that decides: from then
on the old segments that begin within its offsets are void. The new file takes its name, the old ones are removed, and a
later checkpoint knows the new segment; then `exchange` has no meaning any more.

What a crash leaves: without `exchange`, the old segments and perhaps a `.cleaned` file, which recovery removes; with
it, any step of what follows, which recovery does to its end (`finish`) before it looks at the log. Therefore no
`.cleaned` file is begun while an `exchange` may be there, be it one that was never heard to be durable (`settle`).

Index files speak of positions, so those of the segments that go are removed, by recovery too.
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
    """What is known of a log's `exchange` file."""

    UNKNOWN = "one may be there, and means nothing or must not mean anything"
    NONE = "there is none"
    DECIDED = "it is valid, and the files are not all in place"
    DONE = "the files are in place, and no checkpoint knows yet"


class Exchange(NamedTuple):
    """Segments of a log that follow one another, and the one that takes their place."""

    log_path: str
    old: list[Segment]
    new: SegmentState

    @property
    def cleaned_path(self) -> str:
        return cleaned_path(self.log_path, self.new.base_offset)


def cleaned_path(log_path: str, base_offset: int) -> str:
    return f"{log_path}/{segment_name(base_offset)}{CLEANED_SUFFIX}"


def settle(disk: Disk, log_path: str) -> None:
    """Make sure that there is no exchange, not even after a crash (blocking); raises OSError."""
    if disk.exists(f"{log_path}/{FILE_NAME}"):
        disk.remove(f"{log_path}/{FILE_NAME}")
    disk.flush_directory(log_path)


def decide(disk: Disk, exchange: Exchange) -> None:
    """Make the exchange valid (blocking). After OSError it may be so or not; see `settle`.

    The old segments keep the files that they have, for those who are reading; so does the caller with the new one.
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
    """The new segment of an exchange that was decided, be it done or not (blocking); raises OSError."""
    payload = sealed_file.read(disk, f"{log_path}/{FILE_NAME}", KIND)
    return SegmentState(*_STATE.unpack(payload)) if payload and len(payload) == _STATE.size else None


def finish(disk: Disk, log_path: str) -> SegmentState | None:
    """Do what an exchange takes that was decided, and flush it (blocking); the new segment, or None without one.

    May be repeated after OSError and after a crash.
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
    """The offsets at which the segments among the names of a log's directory begin, rising."""
    return sorted(int(name.removesuffix(SEGMENT_SUFFIX)) for name in names if name.endswith(SEGMENT_SUFFIX))


def merged(known: LogState, new: SegmentState) -> tuple[SegmentState, ...]:
    """What a checkpoint that may be older than the exchange knows of a log's segments, with the exchange done."""
    first = known.segments[0].base_offset if known.segments else known.end_offset
    if new.next_offset <= first:
        return known.segments  # Forgotten since.
    others = [state for state in known.segments if not new.base_offset <= state.base_offset < new.next_offset]
    return tuple(sorted([*others, new]))


def _index_name(segment: str) -> str:
    return segment.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
