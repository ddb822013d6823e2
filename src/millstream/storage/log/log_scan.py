"""Scans a log by header and by time. Everything here blocks: for workers.

A valid checksum does not prove that a batch can be decoded: a client encoded it, and the broker has not decoded it. A
batch that cannot be decoded within a memory limit is represented by its header.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.model.ids import Offset
from millstream.records.batch import decode_batch
from millstream.records.header import HEADER_BYTES, LENGTH_END, BatchHeader, CorruptBatch
from millstream.records.record import Record
from millstream.storage.log.failed_reads import read_failed
from millstream.storage.log.log_reader import BatchNotFoundError, check_all, start_of
from millstream.storage.log.segment import NO_TIME, Segment
from millstream.storage.log.sparse_index import BatchPosition

if TYPE_CHECKING:
    from millstream.storage.log.log import Log

OPENED_BYTES_MAX = 16 * 1024 * 1024
"""Batches whose uncompressed size is larger are not decoded to find a timestamp."""

_NO_TIMESTAMP = -1, Offset(-1)
"""The result of `max_timestamp` if no record has a timestamp."""


class LogScan:
    """Finds headers and times in one log. Raises PARTITION_QUARANTINED, KAFKA_STORAGE_ERROR."""

    __slots__ = ("_log",)

    def __init__(self, log: "Log") -> None:
        self._log = log

    def headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        """Yield the header of each batch, beginning with the one that contains `offset`."""
        try:
            yield from self._headers_from(offset)
        except (OSError, MillstreamError) as error:
            raise read_failed(self._log, error) from error

    def offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record at or after the time, or None."""
        try:
            return self._offset_for_time(timestamp_ms)
        except (OSError, MillstreamError) as error:
            raise read_failed(self._log, error) from error

    def max_timestamp(self) -> tuple[int, Offset]:
        """Return (timestamp, offset) of the record with the largest timestamp, or (-1, -1) if there is none."""
        try:
            return self._max_timestamp()
        except (OSError, MillstreamError) as error:
            raise read_failed(self._log, error) from error

    def _headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        log = self._log
        if log.health.quarantined is not None:
            log.health.check()
        end_offset = log.written_offset
        if offset >= end_offset:
            return
        segments, (segment, position) = self._locate(max(offset, log.start_offset))
        base_offset = start_of(self._log.reader.bytes_at(segment, size=HEADER_BYTES, position=position, cold=True))[0]
        for other in [s for s in segments if s.base_offset >= segment.base_offset]:
            begin = BatchPosition(base_offset, position) if other is segment else BatchPosition(other.base_offset, 0)
            for _, header in other.headers(begin, other.size_bytes):
                if header.base_offset >= end_offset:
                    return
                yield header

    def _locate(self, offset: Offset) -> tuple[list[Segment], tuple[Segment, int]]:
        """The current segments, and the segment and position of `offset` among them."""
        while True:
            segments = self._log.segments
            segment = self._log.reader.segment_of(offset)
            # At a segment's start no index is needed. A replay of the whole log would scan it twice otherwise.
            found = (segment, 0) if segment.base_offset == offset else self._log.reader.find(offset, cold=True)
            if found[0] in segments:
                return segments, found

    def _offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        log = self._log
        if log.health.quarantined is not None:
            log.health.check()
        for segment in log.segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            segment.load_index()
            try:
                found = self._first_at_time(segment, timestamp_ms)
            except MillstreamError:
                self._log.reader.distrust(segment, segment.base_offset, cold=True)
                found = self._first_at_time(segment, timestamp_ms)
            if found is not None:
                return found
        return None

    def _first_at_time(self, segment: Segment, timestamp_ms: int) -> tuple[Offset, int] | None:
        entry = segment.index.last_before_time(timestamp_ms)
        assert entry is not None, "a loaded index answers"
        log_start = self._log.start_offset
        for position, header in segment.headers(entry, segment.size_bytes):
            if header.max_timestamp < timestamp_ms or header.next_offset <= log_start:
                continue
            records = self._records(segment, position=position, size=header.size_bytes)
            if records is None:
                return max(header.base_offset, log_start), header.max_timestamp
            for record in records:
                if record.timestamp >= timestamp_ms and record.offset >= log_start:
                    return Offset(record.offset), record.timestamp
        return None

    def _records(self, segment: Segment, *, position: int, size: int) -> list[Record] | None:
        """Decode the records of one batch; None if it cannot be decoded within the memory limit."""
        data = self._log.reader.bytes_at(segment, size=size, position=position, cold=True)
        try:
            check_all(data, position)
        except BatchNotFoundError as error:
            raise self._log.reader.damaged(segment, f"no batch{error}", error.end) from error
        try:
            return decode_batch(data, limit_bytes=OPENED_BYTES_MAX, verify=False)
        except CorruptBatch:
            return None

    def _max_timestamp(self) -> tuple[int, Offset]:
        log = self._log
        if log.health.quarantined is not None:
            log.health.check()
        best = max(log.segments, key=lambda segment: segment.max_timestamp, default=None)
        if best is None or best.max_timestamp == NO_TIME:
            return _NO_TIMESTAMP
        time = best.max_timestamp
        offset = best.max_timestamp_offset
        if offset < log.start_offset:  # The record is below the log start: search the remaining ones.
            headers = (header for header in self._headers_from(log.start_offset) if header.record_count)
            left = ((header.max_timestamp, -header.last_offset) for header in headers)
            time, negative = max(left, default=(-1, 1))
            offset = Offset(-negative)
            if time == NO_TIME:
                return _NO_TIMESTAMP
        segment, position = self._log.reader.find(offset, cold=True)
        head = self._log.reader.bytes_at(segment, size=HEADER_BYTES, position=position, cold=True)
        size = start_of(head)[1] + LENGTH_END
        for record in self._records(segment, position=position, size=size) or ():
            if record.timestamp == time and record.offset >= log.start_offset:
                return record.timestamp, Offset(record.offset)
        return time, offset
