"""Decompresses chunks, and reads chunks from local files, in worker threads, so that the event loop is not blocked.

One chunk is unpacked at a time, shortly before the caller needs it, because unpacked chunks take memory. That memory
counts as prefetched.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from millstream.model.errors import UnreadableError
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.undecodable_batches import unpacked
from millstream.seams.workers import Workers

READ_BYTES = 4 * 1024 * 1024
"""Bytes read at once from a local file."""


class Decompressor:
    """Calls `done` with a chunk and the chunks that replace it; a chunk that cannot be unpacked replaces itself."""

    def __init__(self, workers: Workers, done: Callable[[FetchedChunk, list[FetchedChunk]], None]) -> None:
        self._workers = workers
        self._done = done
        self._chunk: FetchedChunk | None = None

    def begin(self, chunk: FetchedChunk, piece_bytes: int) -> None:
        """Unpack this chunk into pieces of this size, unless another chunk is being unpacked."""
        if self._chunk is None:
            self._chunk = chunk
            read_bytes = max(piece_bytes, READ_BYTES)
            work = self._workers.run(partial(unpacked, chunk, piece_bytes=piece_bytes, read_bytes=read_bytes))
            work.add_done_callback(partial(self._unpacked, chunk))

    def _unpacked(self, chunk: FetchedChunk, pieces: "asyncio.Future[list[FetchedChunk]]") -> None:
        self._chunk = None
        chunk.is_packed = False  # If unpacking failed, opening the chunk fails with the same error and raises it.
        error = pieces.exception()
        if isinstance(error, UnreadableError):
            chunk.fail(error)
        self._done(chunk, [chunk] if error is not None else pieces.result())
