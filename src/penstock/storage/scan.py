"""Walking along the batches of a segment file, header by header. Blocking: for workers."""

from collections.abc import Iterator

from penstock.records.header import HEADER_BYTES, BatchHeader, CorruptBatch, check, read_header
from penstock.storage.disk import DiskFile

CHUNK_BYTES = 256 * 1024
_SMALLEST_LENGTH = HEADER_BYTES - 12


def walk(
    file: DiskFile, position: int, end: int, next_offset: int, *, verify: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Each (position, header) from `position` to `end`, where the first batch must begin at offset `next_offset`.

    Raises CorruptBatch at the first thing that is not a whole batch with the next offset. With `verify` each batch is
    read whole and its checksum counted; without, only headers are looked at.
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            chunk, chunk_at, at = file.read(min(CHUNK_BYTES, end - position), position), position, 0
        header = read_header(chunk, at)
        size = header.batch_length + 12
        if header.base_offset != next_offset:
            raise CorruptBatch(f"offset {header.base_offset} at byte {position}, where {next_offset} is due")
        if header.magic != 2 or header.batch_length < _SMALLEST_LENGTH or size > end - position:
            raise CorruptBatch(f"no batch at byte {position}, where offset {next_offset} is due")
        if verify:
            if len(chunk) - at < size:
                chunk, chunk_at, at = file.read(max(size, min(CHUNK_BYTES, end - position)), position), position, 0
            check(chunk, at, header)
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at byte {position} ends before it begins")
        yield position, header
        next_offset = header.next_offset
        position += size
