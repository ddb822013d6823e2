"""Reading a log: from an offset to a position, and no further than whole batches.

Sequential readers are what matters. After each read the place where it ended is remembered, so the next one, at just
that offset, knows its position without a search; where to stop is known from the segment's end, from the place up to
which the log is durable, or from the index. Such a read is one system call and no look at the batches between.

The reader trusts no position blindly: the batch found there must begin with the offset expected. Bytes that come from
the disk are checked batch by batch; what lies in memory already is handed out as it is, and the client counts its
checksum as it always does.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.batch import decode_batch
from millstream.records.header import HEADER_BYTES, LENGTH_END, BatchHeader, CorruptBatch, check, each_batch
from millstream.records.record import Record
from millstream.seams.file_part import PART_BYTES_MIN, FilePart
from millstream.storage.log.segment import NO_TIME, Segment
from millstream.storage.log.sparse_index import BatchPosition

if TYPE_CHECKING:
    from millstream.storage.log.log import Log

HINTS_MAX = 64
OPENED_BYTES_MAX = 16 * 1024 * 1024
"""Batches that are larger than this when they are unpacked are not opened to find a time: the batch is told instead."""

_NEAR_END_BYTES = 64 * 1024
"""So near the end of a log there may be many readers at one place, all of whom should find it."""

_SEEK_BYTES = 16 * 1024
_start_of = struct.Struct(">qi").unpack_from
_delta_of = struct.Struct(">i").unpack_from
_DELTA_AT = 23

Stretch = tuple[bytes | FilePart, int]
"""Whole batches, and the offset that follows them."""


class NotCached(Exception):  # noqa: N818 - not an error: the caller goes the slow way
    """What a read without waiting ends with when the disk would have to be asked."""


class BatchNotFoundError(Exception):
    """Where a batch was expected, there is none that could be it: a remembered position or the index was wrong."""

    def __init__(self, detail: str = "", end: int = 0) -> None:
        super().__init__(detail and f": {detail}")
        self.end = end
        """Where in the segment what is wrong ends, as far as that is known."""


def _check_first(data: bytes, segment: Segment, offset: int, size_max: int) -> int:
    """The size of the batch that `data` begins with, which may contain `offset`; BatchNotFoundError when it cannot
    be."""
    if len(data) < HEADER_BYTES:
        raise BatchNotFoundError
    base_offset, length = _start_of(data)
    if not (segment.base_offset <= base_offset <= offset and HEADER_BYTES <= length + LENGTH_END <= size_max):
        raise BatchNotFoundError
    return int(length) + LENGTH_END


def _check_all(data: bytes, position: int) -> None:
    """Count the checksum of each batch in `data`, which lies at `position` of its segment; BatchNotFoundError if
    wrong."""
    end = 0
    try:
        for at, header in each_batch(data):
            end = at + header.size_bytes
            check(data, at, header)
    except CorruptBatch as error:
        raise BatchNotFoundError(f"at byte {position}: {error.detail}", position + end) from error
    if end != len(data):
        raise BatchNotFoundError(f"at byte {position + end}: a part of a batch", position + end)


def _base_of(segment: Segment) -> int:
    return segment.base_offset


class LogReader:
    """Reads one log; keeps the places where the last reads ended."""

    __slots__ = ("_hints", "_log")

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._hints: dict[int, tuple[Segment, int]] = {}

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, cold: bool = False, part_bytes: int = 0
    ) -> Stretch | None:
        """See `Log.read`; with `cold`, never None; perhaps a part of a file, of up to `part_bytes`."""
        log = self._log
        if log.quarantined is not None:
            log.refuse()
        log_end = log.end_offset
        if not log.start_offset <= offset <= log_end:
            raise MillstreamError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not within {log.start_offset}..{log_end} of {log.path}"
            )
        if end_offset > log.written_offset:
            end_offset = log.written_offset
        if offset >= end_offset:
            return b"", offset
        try:
            hint = self._hints.pop(offset, None)
            segment, position = hint if hint is not None else self._find(offset, cold)
            if segment.end.position - position < _NEAR_END_BYTES:
                self._remember(offset, segment, position)
            if position == segment.end.position and segment.is_closed:
                segment, position = self._find(offset, cold)
            try:
                return self._read_from(segment, position, offset, max_bytes, end_offset, cold, part_bytes)
            except BatchNotFoundError:
                self._distrust(segment, offset, cold)
            segment, position = self._find(offset, cold)
            return self._read_from(segment, position, offset, max_bytes, end_offset, cold, part_bytes)
        except NotCached:
            return None
        except BatchNotFoundError as error:
            raise self._damaged(segment, f"no batch with offset {offset}{error}", error.end) from error
        except (OSError, MillstreamError) as error:
            raise log.read_failed(error) from error

    def _read_from(
        self, segment: Segment, position: int, offset: int, max_bytes: int, end_offset: int, cold: bool, part_bytes: int
    ) -> Stretch:
        next_offset, limit = self._stop(segment, end_offset, cold)
        if part_bytes and limit - position >= PART_BYTES_MIN and segment.failed is None:
            stop = BatchPosition(next_offset, limit)
            lent = self._lend(segment, stop, position, offset, part_bytes, cold)
            if lent is None and part_bytes > max_bytes:  # So much may not be in memory where less is.
                lent = self._lend(segment, stop, position, offset, max_bytes, cold)
            if lent is not None:
                return lent
        if limit - position > max_bytes:
            place = segment.index.last_at_position(position + max_bytes)
            if place is None or place.position <= position:
                return self._read_few(segment, position, offset, max_bytes, limit, cold)
            next_offset, limit = place
        size = limit - position
        data = self._bytes(segment, size, position, cold)
        _check_first(data, segment, offset, size)
        if cold:
            _check_all(data, position)
        self._remember(next_offset, segment, limit)
        return data, next_offset

    def _lend(
        self, segment: Segment, stop: BatchPosition | None, position: int, offset: int, part_bytes: int, cold: bool
    ) -> Stretch | None:
        """A part of the segment's file that is worth it; None where there is none in memory."""
        if stop is not None and stop.position - position > part_bytes:
            stop = segment.index.last_at_position(position + part_bytes)
        size = 0 if stop is None else stop.position - position
        part = segment.open().part(size, position) if size >= PART_BYTES_MIN else None
        if part is None or stop is None:
            return None
        _check_first(self._bytes(segment, HEADER_BYTES, position, cold), segment, offset, size)
        self._remember(stop.offset, segment, stop.position)
        return part, stop.offset

    def _read_few(
        self, segment: Segment, position: int, offset: int, max_bytes: int, limit: int, cold: bool
    ) -> Stretch:
        """Fewer bytes than the index is fine: look at each header for where to stop."""
        data = self._bytes(segment, min(limit - position, max(max_bytes, HEADER_BYTES)), position, cold)
        size = _check_first(data, segment, offset, limit - position)
        if size > len(data):
            data = self._bytes(segment, size, position, cold)
        end, next_offset = 0, 0
        while end + HEADER_BYTES <= len(data):
            base_offset, length = _start_of(data, end)
            if end + length + LENGTH_END > len(data) or length <= 0:
                break
            next_offset = base_offset + _delta_of(data, end + _DELTA_AT)[0] + 1
            end += length + LENGTH_END
        if end != len(data):
            data = data[:end]
        if cold:
            _check_all(data, position)
        self._remember(next_offset, segment, position + end)
        return data, next_offset

    def whole_before(self, limit: int, offset: int, *, cold: bool = False) -> int | None:
        """Where to stop so as to read whole batches from `offset` on and nothing at or behind `limit`, or else just
        the one batch that has both; None when that is not in memory, never with `cold`. Both offsets are in the log."""
        try:
            begin, following = self._find_in(self._segment_of(limit), limit, cold)
        except NotCached:
            return None
        except (OSError, MillstreamError) as error:
            raise self._log.read_failed(error) from error
        return begin.offset if begin.offset > offset else following.offset

    def _stop(self, segment: Segment, end_offset: int, cold: bool) -> tuple[int, int]:
        """Where in this segment a read below `end_offset` must stop: offset and position."""
        end = segment.end
        if end.offset <= end_offset:
            return end.offset, end.position
        place = self._log.durable_place
        if place is not None and place[0] is segment and self._log.durable_offset == end_offset:
            return end_offset, place[1]
        found, following = self._find_in(segment, end_offset, cold)
        # Only what was compacted has batches over such an offset; they are below the end that readers have by now.
        return found if found.offset == end_offset else following

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        if len(hints) >= HINTS_MAX:
            try:
                del hints[next(iter(hints))]
            except (StopIteration, RuntimeError, KeyError):
                pass  # Another thread was quicker; the bound is kept either way.
        hints[offset] = (segment, position)

    def _segment_of(self, offset: int) -> Segment:
        segments = self._log.segments
        return segments[max(bisect_right(segments, offset, key=_base_of) - 1, 0)]

    def _find(self, offset: int, cold: bool) -> tuple[Segment, int]:
        """The segment and position of the batch that contains `offset`, or ends the search just before it."""
        segment = self._segment_of(offset)
        if segment.end.offset == offset:
            return segment, segment.end.position
        return segment, self._find_in(segment, offset, cold)[0].position

    def _find_in(self, segment: Segment, offset: int, cold: bool) -> tuple[BatchPosition, BatchPosition]:
        """Where the batch that contains `offset`, which the segment has, begins and where it ends."""
        for _ in range(2):
            place = segment.index.last_at_offset(offset)
            if place is None:
                if not cold:
                    raise NotCached
                segment.load_index()
                place = segment.index.last_at_offset(offset)
                assert place is not None, "a loaded index knows at least where the segment begins"
            found = self._seek(segment, place, offset, cold)
            if found is not None:
                return found
            self._distrust(segment, offset, cold)
        raise self._damaged(segment, f"offset {offset} cannot be found")

    def _seek(
        self, segment: Segment, place: BatchPosition, offset: int, cold: bool
    ) -> tuple[BatchPosition, BatchPosition] | None:
        """Walk from an index entry to the batch with `offset`; None when the entry does not point at a batch."""
        expected, position = place
        end = segment.end.position
        while position < end:
            data = self._bytes(segment, min(_SEEK_BYTES, end - position), position, cold)
            at = 0
            while at + HEADER_BYTES <= len(data):
                base_offset, length = _start_of(data, at)
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

    def _distrust(self, segment: Segment, offset: int, cold: bool) -> None:
        """A position was wrong: forget what was remembered, and make the index anew where that may take its time."""
        self._hints = {}
        if not cold:
            raise NotCached
        try:
            segment.rebuild_index()
        except MillstreamError as error:
            raise self._damaged(segment, f"offset {offset}: {error.detail}") from error

    def _damaged(self, segment: Segment, what: str, end: int = 0) -> MillstreamError:
        """What has been flushed and is wrong is lost, and said so; what had not been flushed may yet be repaired.

        `end` is where in the segment the damage ends, where that is known.
        """
        log, reason = self._log, f"{segment.path}: {what}"
        is_changing = log.is_fenced or log.is_deleted or segment not in log.segments
        if segment.failed is not None or is_changing or end > segment.flushed.position:
            return log.unreadable(reason)
        return log.quarantine(reason)

    def _bytes(self, segment: Segment, size: int, position: int, cold: bool) -> bytes:
        """Exactly these bytes, which the segment is known to have."""
        file = segment.file
        if file is None:
            file = segment.open()
        else:
            segment.used = True
        if not cold:
            data = file.read_cached(size, position)
            if data is None:
                raise NotCached
        else:
            data = file.read(size, position)
            if len(data) != size:
                raise self._damaged(segment, f"it ends at byte {position + len(data)}, though more was written")
        if segment.failed is not None and position + size > segment.flushed.position:
            self._check(segment, data)
        return data

    def _check(self, segment: Segment, data: bytes) -> None:
        """After a failed flush the file may show older bytes than were written; none of them may be handed out."""
        try:
            for position, header in each_batch(data):
                check(data, position, header)
        except CorruptBatch as error:
            raise self._damaged(segment, error.detail) from error

    # Times and headers: blocking, for workers.

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        log = self._log
        if log.quarantined is not None:
            log.refuse()
        end_offset = log.written_offset
        if offset >= end_offset:
            return
        segments, (segment, position) = self._place(max(offset, log.start_offset))
        base_offset = _start_of(self._bytes(segment, HEADER_BYTES, position, cold=True))[0]
        for other in [s for s in segments if s.base_offset >= segment.base_offset]:
            place = BatchPosition(base_offset, position) if other is segment else BatchPosition(other.base_offset, 0)
            for _, header in other.headers(place, other.size_bytes):
                if header.base_offset >= end_offset:
                    return
                yield header

    def _place(self, offset: int) -> tuple[list[Segment], tuple[Segment, int]]:
        """The segments as they are at one moment, and where among them `offset` is."""
        while True:
            segments = self._log.segments
            segment = self._segment_of(offset)
            # A start that replays a whole log would else walk along it twice, the first time for the index.
            place = (segment, 0) if segment.base_offset == offset else self._find(offset, cold=True)
            if place[0] in segments:
                return segments, place

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        log = self._log
        if log.quarantined is not None:
            log.refuse()
        for segment in log.segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            segment.load_index()
            try:
                found = self._first_at_time(segment, timestamp_ms)
            except MillstreamError:
                self._distrust(segment, segment.base_offset, cold=True)
                found = self._first_at_time(segment, timestamp_ms)
            if found is not None:
                return found
        return None

    def _first_at_time(self, segment: Segment, timestamp_ms: int) -> tuple[int, int] | None:
        place = segment.index.last_before_time(timestamp_ms)
        assert place is not None, "a loaded index answers"
        log_start = self._log.start_offset
        for position, header in segment.headers(place, segment.size_bytes):
            if header.max_timestamp < timestamp_ms or header.next_offset <= log_start:
                continue
            records = self._records(segment, position, header.size_bytes)
            if records is None:
                return max(header.base_offset, log_start), header.max_timestamp
            for record in records:
                if record.timestamp >= timestamp_ms and record.offset >= log_start:
                    return record.offset, record.timestamp
        return None

    def _records(self, segment: Segment, position: int, size: int) -> list[Record] | None:
        """What is in one batch; None when that cannot be had at a bounded cost. That its checksum is right does not
        mean that it can be opened: a client made it, and nobody has looked into it since."""
        data = self._bytes(segment, size, position, cold=True)
        try:
            _check_all(data, position)
        except BatchNotFoundError as error:
            raise self._damaged(segment, f"no batch{error}", error.end) from error
        try:
            return decode_batch(data, limit_bytes=OPENED_BYTES_MAX, verify=False)
        except CorruptBatch:
            return None

    def max_timestamp(self) -> tuple[int, int]:
        log = self._log
        if log.quarantined is not None:
            log.refuse()
        best = max(log.segments, key=lambda segment: segment.max_timestamp, default=None)
        if best is None or best.max_timestamp == NO_TIME:
            return -1, -1
        time, offset = best.max_timestamp, best.max_timestamp_offset
        if offset < log.start_offset:  # Forgotten, though its segment is there: look at what is left.
            headers = (header for header in self.headers_from(log.start_offset) if header.record_count)
            left = ((header.max_timestamp, -header.last_offset) for header in headers)
            time, offset = max(left, default=(-1, 1))
            offset = -offset
            if time == NO_TIME:
                return -1, -1
        segment, position = self._find(offset, cold=True)
        size = _start_of(self._bytes(segment, HEADER_BYTES, position, cold=True))[1] + LENGTH_END
        for record in self._records(segment, position, size) or ():
            if record.timestamp == time and record.offset >= log.start_offset:
                return record.timestamp, record.offset
        return time, offset
