"""What writers wait for: one round of group commit, as one log sees it. All its writers of that round share it."""

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

_logger = logging.getLogger(__name__)


class FlushRound:
    """Over once; whoever waits is called there and then, in the order in which they asked, before any new request.

    Invariant: `error` says how it ended, and means nothing before `is_over`.
    """

    __slots__ = ("_callbacks", "error", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self.error: BaseException | None = None
        """None: all that was appended when it was asked for is durable. Otherwise KAFKA_STORAGE_ERROR, or
        REQUEST_TIMED_OUT when the broker stops."""
        self._callbacks: list[Callable[[FlushRound], None]] = []

    def then(self, callback: Callable[["FlushRound"], None]) -> None:
        """Call `callback` when it is over: perhaps at once, before this returns."""
        if self.is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, error: BaseException | None = None) -> None:
        """It is over; a fault of one who waited does not reach the others."""
        assert not self.is_over, "a round ends once"
        self.is_over = True
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _logger.exception("something that waited for a flush failed unexpectedly")

    def __await__(self) -> Generator[Any, None, None]:
        """Raises `error`. One who is cancelled meanwhile does not disturb the others."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(commit: FlushRound) -> None:
            if not future.done():
                future.set_result(None)

        self.then(wake)
        yield from future
        if self.error is not None:
            raise self.error
