"""Portions that are compressed, or still to be read, unpacked in workers before anybody opens them: no event loop is
held by it.

One at a time, and a little ahead of the caller, since what is unpacked takes memory; it is counted as fetched.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from millstream.sdk.consuming.partition_reader import FetchedChunk
from millstream.seams.workers import Workers

READ_BYTES = 4 * 1024 * 1024
"""Read at once of what lies in a file."""


class Decompressor:
    """`done` is called with a portion and what takes its place: itself, where it cannot be unpacked."""

    def __init__(self, workers: Workers, done: Callable[[FetchedChunk, list[FetchedChunk]], None]) -> None:
        self._workers = workers
        self._done = done
        self._portion: FetchedChunk | None = None

    def begin(self, portion: FetchedChunk, piece_bytes: int) -> None:
        """Unpack this, in pieces of this size, unless another is being unpacked."""
        if self._portion is None:
            self._portion = portion
            work = self._workers.run(partial(portion.unpacked, piece_bytes, max(piece_bytes, READ_BYTES)))
            work.add_done_callback(partial(self._made, portion))

    def _made(self, portion: FetchedChunk, made: "asyncio.Future[list[FetchedChunk]]") -> None:
        self._portion = None
        portion.is_packed = False  # What cannot be unpacked is found out again by who opens it, and raised there.
        self._done(portion, [portion] if made.exception() is not None else made.result())
