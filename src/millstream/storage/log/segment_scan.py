"""Scans the batches of a segment file, header by header. Blocking: for workers."""

import re
from collections.abc import Iterator

from millstream.records.header import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch, check, read_header
from millstream.seams.disk import DiskFile

CHUNK_BYTES = 256 * 1024
_LARGE_BYTES = 32 * 1024
"""After a batch of this size the next header is read alone: reading the data between headers costs more than a read."""

_FORMAT_AT = 16
_MAY_BE_HEADER = re.compile(rb"(?=\0\0.{14}\x02)", re.DOTALL)
"""Matches an offset below 2**48, and the format number at its position in the header."""
_CHECKED_TIMES = 8


def walk(
    file: DiskFile, *, position: int, end: int, next_offset: int, verify: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position` to `end`. The first batch must have offset `next_offset`.

    Raise CorruptBatch at the first bytes that are not a whole batch with the next offset. With `verify`, each batch is
    read completely and its checksum verified; otherwise only headers are read.
    """
    chunk, chunk_at, size = b"", position, 0
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            wanted = HEADER_BYTES if size >= _LARGE_BYTES and not verify else CHUNK_BYTES
            chunk, chunk_at, at = file.read(min(wanted, end - position), position=position), position, 0
        header = read_header(chunk, at)
        size = header.size_bytes
        _check_place(header, position=position, end=end, next_offset=next_offset)
        if verify:
            if len(chunk) - at < size:
                wanted = max(size, min(CHUNK_BYTES, end - position))
                chunk, chunk_at, at = file.read(wanted, position=position), position, 0
            check(chunk, at, header)
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at byte {position} has a negative last offset delta")
        yield position, header
        next_offset = header.next_offset
        position += size


def read_batches(
    file: DiskFile, *, position: int, end: int, next_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch from `position` to `end` with its bytes, verified. Raises CorruptBatch as `walk` does."""
    chunk, at = b"", 0
    while position < end:
        if len(chunk) - at < HEADER_BYTES:
            chunk, at = file.read(min(CHUNK_BYTES, end - position), position=position), 0
        header = read_header(chunk, at)
        size = header.size_bytes
        _check_place(header, position=position, end=end, next_offset=next_offset)
        if len(chunk) - at < size:
            chunk, at = file.read(min(max(size, CHUNK_BYTES), end - position), position=position), 0
        check(chunk, at, header)
        yield header, memoryview(chunk)[at : at + size]
        next_offset = header.next_offset
        position += size
        at += size


def _check_place(header: BatchHeader, *, position: int, end: int, next_offset: int) -> None:
    """Raise CorruptBatch unless this can be the header of the next batch."""
    if header.base_offset != next_offset:
        raise CorruptBatch(f"offset {header.base_offset} at byte {position}, expected {next_offset}")
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= end - position:
        raise CorruptBatch(f"no batch at byte {position}, expected offset {next_offset}")


def find_later(file: DiskFile, *, position: int, end: int, offset: int) -> int | None:
    """The position after `position` of the first whole batch with an offset above `offset`; None if there is none.

    Bytes that only look like a header are verified too, with a checksum over the size that they claim. Above a limit of
    verified bytes, the next match is returned unverified, because a false positive is safer than a missed batch.
    """
    left_bytes = _CHECKED_TIMES * (end - position)
    while position + HEADER_BYTES <= end:
        chunk = file.read(min(CHUNK_BYTES, end - position), position=position)
        for match in _MAY_BE_HEADER.finditer(chunk):
            at = position + match.start()
            data = file.read(HEADER_BYTES, position=at)
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


def batches_behind(file: DiskFile, *, position: int, end: int, offset: int) -> Iterator[BatchHeader]:
    """Yield each whole batch from `position` on with an offset of at least `offset`, across damaged bytes."""
    found: int | None = position
    while found is not None:
        position = found
        try:
            header = read_header(file.read(HEADER_BYTES, position=position))
            if header.base_offset >= offset and HEADER_BYTES <= header.size_bytes <= end - position:
                check(file.read(header.size_bytes, position=position), 0, header)
                yield header
                found = position + header.size_bytes
                continue
        except CorruptBatch:
            pass
        found = find_later(file, position=position + 1, end=end, offset=offset - 1)


def _is_whole(file: DiskFile, position: int, header: BatchHeader) -> bool:
    try:
        check(file.read(header.size_bytes, position=position), 0, header)
    except CorruptBatch:
        return False
    return True
