"""Reads whole batches from a log, from an offset up to a byte limit.

Sequential reads are optimised. Each read remembers the position where it ended, so the next read at that offset needs
no search. The position to stop at comes from the segment's end, from the position of flushed_offset, or from the
index. Such a read is one system call and does not parse the batches.

The reader verifies every position: the batch there must have the expected offset. Bytes that come from the disk are
checked batch by batch. Bytes from the page cache are returned unchecked; clients verify the checksums anyway.
"""

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset
from millstream.records.header import HEADER_BYTES, LENGTH_END, CorruptBatch, check, each_batch
from millstream.seams.file_part import PART_BYTES_MIN, FilePart
from millstream.storage.log.failed_reads import read_failed, unreadable
from millstream.storage.log.segment import Segment
from millstream.storage.log.sparse_index import BatchPosition

if TYPE_CHECKING:
    from millstream.storage.log.log import Log

HINTS_MAX = 64
_NEAR_END_BYTES = 64 * 1024
"""Within this distance of the log's end, a position stays remembered, because many readers may need it."""

_SEEK_BYTES = 16 * 1024
start_of = struct.Struct(">qi").unpack_from
_delta_of = struct.Struct(">i").unpack_from
_DELTA_AT = 23

Stretch = tuple[bytes | FilePart, Offset]
"""Whole batches, and the offset after them."""


class NotCached(Exception):  # noqa: N818 - not an error: the caller reads in a worker instead
    """Raised when a read that must not wait would have to read the disk."""


class BatchNotFoundError(Exception):
    """Raised when no matching batch is at a position: a remembered position or the index was wrong."""

    def __init__(self, detail: str = "", end: int = 0) -> None:
        super().__init__(detail and f": {detail}")
        self.end = end
        """The position in the segment where the damage ends, if it is known, else 0."""


def _check_first(data: bytes, segment: Segment, offset: int, *, size_max: int) -> int:
    """Return the size of the first batch in `data`. Raise BatchNotFoundError if it cannot contain `offset`."""
    if len(data) < HEADER_BYTES:
        raise BatchNotFoundError
    base_offset, length = start_of(data)
    if not (segment.base_offset <= base_offset <= offset and HEADER_BYTES <= length + LENGTH_END <= size_max):
        raise BatchNotFoundError
    return int(length) + LENGTH_END


def check_all(data: bytes, position: int) -> None:
    """Verify the checksums of the batches in `data`, which is at `position` of its segment.

    Raise BatchNotFoundError if one is wrong.
    """
    end = 0
    try:
        for at, header in each_batch(data):
            end = at + header.size_bytes
            check(data, at, header)
    except CorruptBatch as error:
        raise BatchNotFoundError(f"at byte {position}: {error.detail}", position + end) from error
    if end != len(data):
        raise BatchNotFoundError(f"at byte {position + end}: the batch is incomplete", position + end)


def _base_of(segment: Segment) -> int:
    return segment.base_offset


class LogReader:
    """Reads one log, and remembers the positions where the last reads ended."""

    __slots__ = ("_hints", "_log")

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._hints: dict[int, tuple[Segment, int]] = {}

    def read(
        self, offset: Offset, *, max_bytes: int, end_offset: Offset, cold: bool = False, part_bytes: int = 0
    ) -> Stretch | None:
        """Read whole batches from `offset` on, of up to `max_bytes`, and not beyond `end_offset`.

        Return None if the data is not in memory; with `cold`, read the disk instead. With `part_bytes`, the result may
        be a file part of up to that size.
        """
        log = self._log
        if log.health.quarantined is not None:
            log.health.check()
        log_end = log.end_offset
        if not log.start_offset <= offset <= log_end:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.start_offset}..{log_end} of {log.path.rpartition('/')[2]}",
            )
        if end_offset > log.written_offset:
            end_offset = log.written_offset
        if offset >= end_offset:
            return b"", offset
        try:
            hint = self._hints.pop(offset, None)
            segment, position = hint if hint is not None else self.find(offset, cold)
            if segment.end.position - position < _NEAR_END_BYTES:
                self._remember(offset, segment, position)
            if position == segment.end.position and segment.is_closed:
                segment, position = self.find(offset, cold)
            try:
                return self._read_from(segment, position, offset, max_bytes, end_offset, cold, part_bytes)
            except BatchNotFoundError:
                self.distrust(segment, offset, cold)
            segment, position = self.find(offset, cold)
            return self._read_from(segment, position, offset, max_bytes, end_offset, cold, part_bytes)
        except NotCached:
            return None
        except BatchNotFoundError as error:
            raise self.damaged(segment, f"no batch with offset {offset}{error}", error.end) from error
        except (OSError, MillstreamError) as error:
            raise read_failed(log, error) from error

    def _read_from(
        self,
        segment: Segment,
        position: int,
        offset: Offset,
        max_bytes: int,
        end_offset: Offset,
        cold: bool,
        part_bytes: int,
    ) -> Stretch:
        next_offset, limit = self._stop(segment, end_offset, cold)
        if part_bytes and limit - position >= PART_BYTES_MIN and segment.failed is None:
            stop = BatchPosition(next_offset, limit)
            lent = self._lend(segment, stop, position, offset, part_bytes, cold)
            if lent is None and part_bytes > max_bytes:  # A smaller part may be in memory.
                lent = self._lend(segment, stop, position, offset, max_bytes, cold)
            if lent is not None:
                return lent
        if limit - position > max_bytes:
            indexed = segment.index.last_at_position(position + max_bytes)
            if indexed is None or indexed.position <= position:
                return self._read_few(segment, position, offset, max_bytes, limit=limit, cold=cold)
            next_offset, limit = indexed
        size = limit - position
        data = self.bytes_at(segment, size=size, position=position, cold=cold)
        _check_first(data, segment, offset, size_max=size)
        if cold:
            check_all(data, position)
        self._remember(next_offset, segment, limit)
        return data, next_offset

    def _lend(
        self, segment: Segment, stop: BatchPosition | None, position: int, offset: Offset, part_bytes: int, cold: bool
    ) -> Stretch | None:
        """A large enough part of the segment's file, or None if that is not in memory."""
        if stop is not None and stop.position - position > part_bytes:
            stop = segment.index.last_at_position(position + part_bytes)
        size = 0 if stop is None else stop.position - position
        part = segment.open().part(size, position=position) if size >= PART_BYTES_MIN else None
        if part is None or stop is None:
            return None
        _check_first(
            self.bytes_at(segment, size=HEADER_BYTES, position=position, cold=cold), segment, offset, size_max=size
        )
        self._remember(stop.offset, segment, stop.position)
        return part, stop.offset

    def _read_few(
        self, segment: Segment, position: int, offset: Offset, max_bytes: int, *, limit: int, cold: bool
    ) -> Stretch:
        """Read fewer bytes than the index distinguishes: parse each header to find where to stop."""
        data = self.bytes_at(
            segment, size=min(limit - position, max(max_bytes, HEADER_BYTES)), position=position, cold=cold
        )
        size = _check_first(data, segment, offset, size_max=limit - position)
        if size > len(data):
            data = self.bytes_at(segment, size=size, position=position, cold=cold)
        end, next_offset = 0, Offset(0)
        while end + HEADER_BYTES <= len(data):
            base_offset, length = start_of(data, end)
            if end + length + LENGTH_END > len(data) or length <= 0:
                break
            next_offset = base_offset + _delta_of(data, end + _DELTA_AT)[0] + 1
            end += length + LENGTH_END
        if end != len(data):
            data = data[:end]
        if cold:
            check_all(data, position)
        self._remember(next_offset, segment, position + end)
        return data, next_offset

    def whole_before(self, *, limit: int, offset: Offset, cold: bool = False) -> Offset | None:
        """The offset at which a read of whole batches from `offset` must stop to omit `limit` and all after it.

        If one batch contains both offsets, the read returns just that batch. The result is None if the data is not in
        memory, which never happens with `cold`. Both offsets must be in the log.
        """
        try:
            begin, following = self.find_in(self.segment_of(limit), Offset(limit), cold)
        except NotCached:
            return None
        except (OSError, MillstreamError) as error:
            raise read_failed(self._log, error) from error
        return begin.offset if begin.offset > offset else following.offset

    def _stop(self, segment: Segment, end_offset: Offset, cold: bool) -> tuple[Offset, int]:
        """The offset and position in this segment at which a read below `end_offset` must stop."""
        end = segment.end
        if end.offset <= end_offset:
            return end.offset, end.position
        flushed = self._log.flushed_position
        if flushed is not None and flushed[0] is segment and self._log.flushed_offset == end_offset:
            return end_offset, flushed[1]
        found, following = self.find_in(segment, end_offset, cold)
        # Only compacted segments have a batch that contains such an offset. It is below the readers' current end.
        return found if found.offset == end_offset else following

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        if len(hints) >= HINTS_MAX:
            try:
                del hints[next(iter(hints))]
            except (StopIteration, RuntimeError, KeyError):
                pass  # Another thread removed one first. The limit holds in both cases.
        hints[offset] = (segment, position)

    def segment_of(self, offset: int) -> Segment:
        segments = self._log.segments
        return segments[max(bisect_right(segments, offset, key=_base_of) - 1, 0)]

    def find(self, offset: Offset, cold: bool) -> tuple[Segment, int]:
        """The segment and position of the batch that contains `offset`; at a segment's end, the position of the end."""
        segment = self.segment_of(offset)
        if segment.end.offset == offset:
            return segment, segment.end.position
        return segment, self.find_in(segment, offset, cold)[0].position

    def find_in(self, segment: Segment, offset: Offset, cold: bool) -> tuple[BatchPosition, BatchPosition]:
        """The begin and the end of the batch that contains `offset`, which must be in the segment."""
        for _ in range(2):
            entry = segment.index.last_at_offset(offset)
            if entry is None:
                if not cold:
                    raise NotCached
                segment.load_index()
                entry = segment.index.last_at_offset(offset)
                assert entry is not None, "a loaded index has at least the begin of the segment"
            found = self._seek(segment, entry, offset, cold)
            if found is not None:
                return found
            self.distrust(segment, offset, cold)
        raise self.damaged(segment, f"offset {offset} cannot be found")

    def _seek(
        self, segment: Segment, entry: BatchPosition, offset: int, cold: bool
    ) -> tuple[BatchPosition, BatchPosition] | None:
        """Scan from an index entry to the batch with `offset`; None if the entry does not point to a batch."""
        expected, position = entry
        end = segment.end.position
        while position < end:
            data = self.bytes_at(segment, size=min(_SEEK_BYTES, end - position), position=position, cold=cold)
            at = 0
            while at + HEADER_BYTES <= len(data):
                base_offset, length = start_of(data, at)
                if base_offset != expected or length < HEADER_BYTES - LENGTH_END:
                    return None
                expected = base_offset + _delta_of(data, at + _DELTA_AT)[0] + 1
                begin, at = at, at + length + LENGTH_END
                if offset < expected:
                    return BatchPosition(base_offset, position + begin), BatchPosition(expected, position + at)
            if at == 0:
                return None
            position += at
        return None

    def distrust(self, segment: Segment, offset: int, cold: bool) -> None:
        """Drop all remembered positions and rebuild the index, because a position was wrong.

        Raise NotCached unless `cold`.
        """
        self._hints = {}
        if not cold:
            raise NotCached
        try:
            segment.rebuild_index()
        except MillstreamError as error:
            raise self.damaged(segment, f"offset {offset}: {error.detail}") from error

    def damaged(self, segment: Segment, what: str, end: int = 0) -> MillstreamError:
        """Quarantine the log if flushed data is damaged, and return the error to raise. Unflushed data may be repaired.

        `end` is the position in the segment where the damage ends, if it is known.
        """
        log, reason = self._log, f"{segment.path}: {what}"
        is_changing = log.health.is_fenced or log.is_deleted or segment not in log.segments
        if segment.failed is not None or is_changing or end > segment.flushed.position:
            return unreadable(log, reason)
        return log.quarantine(reason)

    def bytes_at(self, segment: Segment, *, size: int, position: int, cold: bool) -> bytes:
        """Read exactly these bytes, which the segment must have."""
        file = segment.file
        if file is None:
            file = segment.open()
        else:
            segment.used = True
        if not cold:
            data = file.read_cached(size, position=position)
            if data is None:
                raise NotCached
        else:
            data = file.read(size, position=position)
            if len(data) != size:
                raise self.damaged(segment, f"it ends at byte {position + len(data)}, though more was written")
        if segment.failed is not None and position + size > segment.flushed.position:
            self._check(segment, data)
        return data

    def _check(self, segment: Segment, data: bytes) -> None:
        """Verify checksums, because after a failed flush the file may show older bytes, which no reader may get."""
        try:
            for position, header in each_batch(data):
                check(data, position, header)
        except CorruptBatch as error:
            raise self.damaged(segment, error.detail) from error
