"""Walking along the batches of a segment file, header by header. Blocking: for workers."""

import re
from collections.abc import Iterator

from millstream.records.header import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, check, read_header
from millstream.seams.disk import DiskFile

CHUNK_BYTES = 256 * 1024
_LARGE_BYTES = 32 * 1024
"""Behind a batch of this size the next header is read alone: what lies between headers costs more than a read."""

_FORMAT_AT = 16
_MAY_BE_HEADER = re.compile(rb"(?=\0\0.{14}\x02)", re.DOTALL)
"""An offset below 2**48, and the number of the format where it must be."""
_CHECKED_TIMES = 8


def walk(
    file: DiskFile, position: int, end: int, next_offset: int, *, verify: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Each (position, header) from `position` to `end`, where the first batch must begin at offset `next_offset`.

    Raises CorruptBatch at the first thing that is not a whole batch with the next offset. With `verify` each batch is
    read whole and its checksum counted; without, only headers are looked at.
    """
    chunk, chunk_at, size = b"", position, 0
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            wanted = HEADER_BYTES if size >= _LARGE_BYTES and not verify else CHUNK_BYTES
            chunk, chunk_at, at = file.read(min(wanted, end - position), position), position, 0
        header = read_header(chunk, at)
        size = header.size_bytes
        _check_place(header, position, end, next_offset)
        if verify:
            if len(chunk) - at < size:
                chunk, chunk_at, at = file.read(max(size, min(CHUNK_BYTES, end - position)), position), position, 0
            check(chunk, at, header)
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at byte {position} ends before it begins")
        yield position, header
        next_offset = header.next_offset
        position += size


def read_batches(file: DiskFile, position: int, end: int, next_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch from `position` to `end`, checked, with its bytes; raises CorruptBatch as `walk` does."""
    chunk, at = b"", 0
    while position < end:
        if len(chunk) - at < HEADER_BYTES:
            chunk, at = file.read(min(CHUNK_BYTES, end - position), position), 0
        header = read_header(chunk, at)
        size = header.size_bytes
        _check_place(header, position, end, next_offset)
        if len(chunk) - at < size:
            chunk, at = file.read(min(max(size, CHUNK_BYTES), end - position), position), 0
        check(chunk, at, header)
        yield header, memoryview(chunk)[at : at + size]
        next_offset = header.next_offset
        position += size
        at += size


def _check_place(header: BatchHeader, position: int, end: int, next_offset: int) -> None:
    """CorruptBatch unless this can be the header of the batch that is due."""
    if header.base_offset != next_offset:
        raise CorruptBatch(f"offset {header.base_offset} at byte {position}, where {next_offset} is due")
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= end - position:
        raise CorruptBatch(f"no batch at byte {position}, where offset {next_offset} is due")


def find_later(file: DiskFile, position: int, end: int, offset: int) -> int | None:
    """Where behind `position` a whole batch begins whose offset is greater than `offset`; None when there is none.

    Bytes that look like headers without being any are possible, and each costs a look at what they claim to be. When
    too much has been looked at, the answer is the place of the last of them: rather a batch too many than one too few.
    """
    left_bytes = _CHECKED_TIMES * (end - position)
    while position + HEADER_BYTES <= end:
        chunk = file.read(min(CHUNK_BYTES, end - position), position)
        for match in _MAY_BE_HEADER.finditer(chunk):
            at = position + match.start()
            data = file.read(HEADER_BYTES, at)
            if len(data) < HEADER_BYTES:
                break
            header = read_header(data)
            size = header.size_bytes
            if header.base_offset <= offset or not HEADER_BYTES <= size <= end - at:
                continue
            left_bytes -= size
            if left_bytes < 0 or _is_whole(file, at, header):
                return at
        position += max(len(chunk) - _FORMAT_AT, 1)
    return None


def _is_whole(file: DiskFile, position: int, header: BatchHeader) -> bool:
    try:
        check(file.read(header.size_bytes, position), 0, header)
    except CorruptBatch:
        return False
    return True
