"""Opens fetched chunks within limits: small ones on the event loop, compressed ones in a worker, one at a time.

A few compressed bytes can unpack to millions. So the memory of a chunk is counted before it is unpacked, and a batch
beyond the limit of `ReadMemory` is not unpacked but reported as RESPONSE_TOO_LARGE.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial

from millstream.model.errors import ErrorCode, UnreadableError
from millstream.records.header import CorruptBatch, OversizedBatch
from millstream.records.message import Message
from millstream.sdk.connection.read_memory import held
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.batch_opening import HEAVY_BYTES
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.undecodable_batches import apart, log_skipped, unpacked

LIGHT_BYTES_MAX = 1024 * 1024
"""Maximum bytes that a small compressed chunk may unpack to on the event loop; a worker unpacks larger ones."""

PIECE_BYTES = 32 * 1024
"""Chunks are opened in pieces of this size, and only as many as a read needs: small reads get large answers too."""

COPIES_MAX = 3
"""Maximum number of copies of an unpacked batch at one time: decompressed, as a batch again, and as messages."""


class ChunkOpener:
    """Opens chunks for one client or one part of it."""

    def __init__(self, asking: RetryingCaller) -> None:
        self._workers = asking.workers
        self._memory = asking.memory
        self._limit_bytes = asking.memory.unpacked_bytes_max
        self._unpacking = asyncio.Lock()
        """Held while a worker unpacks: one chunk at a time, because unpacked chunks take memory."""

    async def open(
        self, chunks: Iterable[FetchedChunk], *, messages_max: int, bytes_max: int, skips_bad_batches: bool
    ) -> tuple[list[Message], int | None]:
        """Open chunks of one partition until there are enough messages; return these and the offset that follows them.

        The messages end before the first batch that cannot be read. Raises UNDECODABLE_BATCH or RESPONSE_TOO_LARGE if
        no message precedes that batch, and CORRUPT_MESSAGE if it is damaged. The offset is None without any chunk.
        """
        messages: list[Message] = []
        size_bytes, next_offset = 0, None
        rest, parts = iter(chunks), deque[FetchedChunk]()
        while len(messages) < messages_max and size_bytes < bytes_max:
            part = parts.popleft() if parts else next(rest, None)
            if part is None:
                break
            try:
                more = await self._open(part, parts)
            except UnreadableError as error:
                if skips_bad_batches and error.code is ErrorCode.UNDECODABLE_BATCH:
                    log_skipped(error)
                    more = []
                elif messages:
                    break
                else:
                    raise
            if more is not None:
                messages += more
                size_bytes += part.size_bytes
                next_offset = part.next_offset
        return messages, next_offset

    async def _open(self, part: FetchedChunk, parts: deque[FetchedChunk]) -> list[Message] | None:
        """Return the messages of a chunk; None if it is replaced by smaller ones at the front of `parts`."""
        is_light = part.size_bytes < HEAVY_BYTES
        try:
            if not part.is_packed:
                return part.open(LIGHT_BYTES_MAX if is_light else max(self._limit_bytes, part.size_bytes))
        except CorruptBatch as error:
            if not (is_light and isinstance(error, OversizedBatch)):
                parts.extendleft(reversed(apart(part, error, self._limit_bytes)))
                return None
        unpack = partial(unpacked, part, piece_bytes=PIECE_BYTES, read_bytes=PIECE_BYTES, limit_bytes=self._limit_bytes)
        async with self._unpacking:
            with held(self._memory, COPIES_MAX * self._limit_bytes):
                found = await self._workers.run(unpack)
        parts.extendleft(reversed(found))
        return None
