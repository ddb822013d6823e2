"""Portions that are compressed, unpacked in workers before anybody opens them: no event loop is held by it.

One at a time, and one ahead of the caller, since what is unpacked takes memory; it is counted as fetched.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.model.workers import Workers
from penstock.sdk.consuming.reader import Portion


class Unpacking:
    """`done` is called with a portion and what takes its place."""

    def __init__(self, workers: Workers, done: Callable[[Portion, list[Portion]], None]) -> None:
        self._workers = workers
        self._done = done
        self._portion: Portion | None = None

    def begin(self, portion: Portion) -> None:
        """Unpack this, unless another is being unpacked."""
        if self._portion is None:
            self._portion = portion
            self._workers.run(portion.unpacked).add_done_callback(partial(self._made, portion))

    def _made(self, portion: Portion, made: "asyncio.Future[list[Portion]]") -> None:
        self._portion = None
        portion.is_packed = False  # What cannot be unpacked is found out again by who opens it, and raised there.
        self._done(portion, [portion] if made.exception() is not None else made.result())
