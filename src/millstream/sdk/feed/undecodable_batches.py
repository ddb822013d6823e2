"""Isolates batches that cannot be decoded, so that a reader gets the messages before and after them.

A batch with a right checksum is as its producer made it. If its records cannot be decoded, another fetch returns the
same bytes, so the reader reports UNDECODABLE_BATCH or skips the batch. Any other damage may have happened in transit
and is CORRUPT_MESSAGE, after which the reader fetches again.
"""

import logging

from millstream.model.errors import ErrorCode, MillstreamError, UnreadableError
from millstream.process.log_event import LogEvent
from millstream.records.batch import DECODED_BYTES_MAX, each_piece
from millstream.records.header import HEADER_BYTES, CorruptBatch, OversizedBatch, has_right_checksum, read_header
from millstream.records.message import Message
from millstream.sdk.arguments import check_choice
from millstream.sdk.feed.batch_opening import HEAVY_BYTES
from millstream.sdk.feed.fetched_chunk import FetchedChunk

SKIP = "skip"
ON_BAD_BATCH = ("raise", SKIP)
"""The values of the option `on_bad_batch`."""

READ_RAW = "read it as bytes with `millstream get` or the SDK"
"""The advice for a message that is too large for a response. Every response of the gateway has this limit."""

_log = logging.getLogger("millstream.sdk.reader")


def skips_bad_batches(on_bad_batch: str) -> bool:
    """Return True if the option is "skip"; raises INVALID_SETTING for another value than these."""
    check_choice("on_bad_batch", on_bad_batch, ON_BAD_BATCH)
    return on_bad_batch == SKIP


def batches_of(chunk: FetchedChunk) -> list[FetchedChunk]:
    """Return a chunk for each batch of a chunk that is in memory, with a copy of its bytes."""
    pieces = list(each_piece(chunk.stored, chunk.offset, size_bytes=1))
    found: list[FetchedChunk] = []
    offset = chunk.offset
    for number, piece in enumerate(pieces, 1):
        is_last = number == len(pieces) or piece.next_offset >= chunk.next_offset
        end = chunk.next_offset if is_last else piece.next_offset
        is_heavy = piece.is_packed and len(piece.stored) >= HEAVY_BYTES
        stored = memoryview(bytes(piece.stored))
        found.append(chunk.part(offset, next_offset=end, stored=stored, is_packed=is_heavy))
        if is_last:
            break
        offset = end
    return found


def apart(chunk: FetchedChunk, damage: MillstreamError, limit_bytes: int = DECODED_BYTES_MAX) -> list[FetchedChunk]:
    """Return a chunk for each batch of a chunk that cannot be opened; raises the verdict if it has only one."""
    damage.with_traceback(None)  # Its frames hold what was decompressed, for as long as the error is kept.
    parts = batches_of(chunk)
    if len(parts) > 1:
        return parts
    error = verdict(chunk, damage, limit_bytes)
    raise error from (None if error is damage else damage)


def verdict(chunk: FetchedChunk, damage: MillstreamError, limit_bytes: int = DECODED_BYTES_MAX) -> MillstreamError:
    """Return the error of a chunk of one batch that cannot be opened.

    If the checksum is right, the error is UNDECODABLE_BATCH, or RESPONSE_TOO_LARGE for a batch that is only too large
    for this reader's limit. Otherwise it is `damage`.
    """
    header = read_header(chunk.stored) if len(chunk.stored) >= HEADER_BYTES else None
    if header is None or not has_right_checksum(chunk.stored, 0, header):
        return damage
    code, reason = ErrorCode.UNDECODABLE_BATCH, f"cannot be decoded: {damage.detail}"
    if isinstance(damage, OversizedBatch) and limit_bytes < DECODED_BYTES_MAX:
        code = ErrorCode.RESPONSE_TOO_LARGE
        reason = f"unpacks to more than {limit_bytes} bytes, the limit of this reader; {READ_RAW}"
    text = (
        f"{chunk.where}: the batch at offset {chunk.offset} {reason}; continue at offset {chunk.next_offset} to skip it"
    )
    return UnreadableError(code, text, chunk.where, offset=chunk.offset, next_offset=chunk.next_offset)


def isolated(chunk: FetchedChunk, error: MillstreamError, *, skips: bool, is_raised: bool) -> list[FetchedChunk]:
    """Return the chunks that replace one that cannot be opened: one for each batch.

    A single batch that cannot be decoded becomes a chunk without messages with `skips`. Its error is raised with
    `is_raised`; otherwise a copy of the chunk is returned.
    """
    try:
        if isinstance(error, UnreadableError):
            raise error
        return apart(chunk, error)
    except UnreadableError as unreadable:
        if skips:
            log_skipped(unreadable)
            return [chunk.without_messages(chunk.next_offset)]
        if is_raised:
            raise
        return batches_of(chunk)


def unpacked(
    chunk: FetchedChunk, *, piece_bytes: int, read_bytes: int, limit_bytes: int = DECODED_BYTES_MAX
) -> list[FetchedChunk]:
    """Decompress a chunk, or read it from a file, as `FetchedChunk.unpacked` does. May run in any thread.

    If a batch cannot be decompressed, return a chunk for each batch, still compressed. Raises the errors of `apart`.
    """
    try:
        return chunk.unpacked(piece_bytes=piece_bytes, read_bytes=read_bytes, limit_bytes=limit_bytes)
    except CorruptBatch as error:
        return apart(chunk, error, limit_bytes)


def open_prefix(chunk: FetchedChunk, *, skips: bool = False) -> tuple[list[Message], int]:
    """Return the messages before the first batch that cannot be decoded, and the offset that follows them.

    With `skips`, leave out such batches and return the messages of all others. Raises the verdict if no message
    precedes the batch. May run in any thread.
    """
    try:
        return chunk.open(), chunk.next_offset
    except CorruptBatch:
        parts = batches_of(chunk)
    found: list[Message] = []
    for part in parts:
        try:
            found += part.open()
        except CorruptBatch as damage:
            error = verdict(part, damage)
            if skips and isinstance(error, UnreadableError):
                log_skipped(error)
            elif found:
                return found, part.offset
            else:
                raise error from (None if error is damage else damage)
    return found, chunk.next_offset


def log_skipped(error: UnreadableError) -> None:
    """Log a batch that a reader skips because it cannot be decoded."""
    _log.warning(
        LogEvent(
            "undecodable batch skipped",
            topic=error.topic,
            partition=error.partition,
            offset=error.offset,
            next_offset=error.next_offset,
            error=error.detail,
        )
    )
