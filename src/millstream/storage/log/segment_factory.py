"""Creates the segments of one log, and computes the segment lists that follow from a transition.

A segment list is never changed in place, because workers read it while the event loop appends.
"""

from collections.abc import Sequence

from millstream.model.ids import Offset
from millstream.seams.clock import Clock
from millstream.seams.disk import DiskFile
from millstream.storage.log.log_settings import LogSettings
from millstream.storage.log.open_files import OpenFiles
from millstream.storage.log.segment import Segment, SegmentState
from millstream.storage.log.sparse_index import SparseIndex


class SegmentFactory:
    """Creates segments in one log's directory."""

    __slots__ = ("_clock", "_files", "_path")

    def __init__(self, path: str, files: OpenFiles, clock: Clock) -> None:
        self._path = path
        self._files = files
        self._clock = clock

    def fresh(self, base_offset: Offset, settings: LogSettings) -> Segment:
        """Create a new segment and its file. Raise OSError."""
        now_ms = self._clock.wall_ms()
        return Segment.fresh(
            self._path, base_offset, self._files, interval_bytes=settings.index_interval_bytes, now_ms=now_ms
        )

    def stored(self, states: Sequence[SegmentState], settings: LogSettings) -> list[Segment]:
        """Create objects for consecutive segments whose files exist and are flushed. All but the last are closed."""
        return [self._stored(state, settings, is_closed=state is not states[-1]) for state in states]

    def rewritten(self, state: SegmentState, settings: LogSettings, file: DiskFile, index: SparseIndex) -> Segment:
        """Create a closed segment whose file still has another name."""
        segment = self._stored(state, settings, is_closed=True)
        segment.written_elsewhere(file, index)
        return segment

    def _stored(self, state: SegmentState, settings: LogSettings, *, is_closed: bool) -> Segment:
        return Segment(self._path, state, self._files, settings.index_interval_bytes, is_closed=is_closed)

    def is_old(self, segment: Segment, settings: LogSettings) -> bool:
        """Return True if the active segment has reached the age at which the log rolls."""
        age_ms = settings.segment_ms
        return age_ms >= 0 and self._clock.wall_ms() - segment.created_ms >= age_ms


def split_below(segments: list[Segment], offset: int) -> tuple[list[Segment], list[Segment]]:
    """Split off the segments that end at or below an offset. The active segment is always kept."""
    kept = [segment for segment in segments[:-1] if segment.next_offset > offset]
    kept.append(segments[-1])
    return segments[: len(segments) - len(kept)], kept


def replaced(segments: list[Segment], old: Sequence[Segment], new: Segment) -> list[Segment]:
    """Return the segments with a new one in place of consecutive old ones."""
    first = segments.index(old[0])
    assert segments[first : first + len(old)] == list(old), "only the cleaner changes these segments"
    return [*segments[:first], new, *segments[first + len(old) :]]
