"""Tracks the unfinished appends of one request: batches that are being opened, and batches to be acknowledged.

The timeout of a request applies only to acknowledgements. A batch that waits to be opened holds the memory of its
request. The response releases this memory.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Protocol

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.partition.append_result import AppendResult
from millstream.partition.put_deduplication import KnownIds
from millstream.partition.watermark import Acknowledgement


class AppendOutcome(Protocol):
    """Receives the outcome of one append."""

    def stored(self, appended: AppendResult) -> None:
        """Report that the batch was opened and appended."""
        ...

    def failed(self, error: BaseException) -> None:
        """Report that the batch was refused, or that its outcome is unknown."""
        ...


_NONE_OPENING: dict[asyncio.Future[AppendResult], AppendOutcome] = {}
"""A shared empty dictionary, since most requests have no batch that must be opened. It is never changed."""


class PendingAppends:
    """Waits for the appends of one request and then calls `finished` once."""

    __slots__ = ("_deadlines", "_finished", "_is_late", "_opening", "_timeout_ms", "_unacknowledged")

    def __init__(self, deadlines: "AppendDeadlines") -> None:
        self._deadlines = deadlines
        self._opening = _NONE_OPENING
        self._unacknowledged: dict[Acknowledgement, AppendOutcome] = {}
        self._is_late = False

    def add(self, acknowledgement: Acknowledgement, outcome: AppendOutcome) -> None:
        """Add an appended batch that waits for its acknowledgement."""
        self._unacknowledged[acknowledgement] = outcome

    def open(self, opening: asyncio.Future[AppendResult], outcome: AppendOutcome) -> None:
        """Add a batch that is being opened and will then be appended."""
        if self._opening is _NONE_OPENING:
            self._opening = {}
        self._opening[opening] = outcome

    def begin(self, timeout_ms: int, finished: Callable[[], None]) -> None:
        """Call `finished` when all appends are complete, possibly before this returns."""
        self._finished: Callable[[], None] | None = finished
        self._timeout_ms = timeout_ms if timeout_ms > 0 else 0
        self._deadlines.add(self, self._timeout_ms / 1000)
        for acknowledgement in tuple(self._unacknowledged):
            acknowledgement.then(self._acknowledged)
        for opening in self._opening:
            opening.add_done_callback(self._appended)

    def _appended(self, opening: asyncio.Future[AppendResult]) -> None:
        outcome = self._opening.pop(opening)
        error = opening.exception()
        acknowledgement = None
        if error is None:
            appended = opening.result()
            outcome.stored(appended)
            acknowledgement = appended.acknowledgement
        else:
            outcome.failed(error)
            if isinstance(error, KnownIds):  # The response names the first copies once they are acknowledged.
                acknowledgement = error.acknowledgement
        if acknowledgement is not None:
            self._unacknowledged[acknowledgement] = outcome
            if self._is_late:
                self._give_up()
            else:
                acknowledgement.then(self._acknowledged)
                return
        self._finish_if_over()

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        outcome = self._unacknowledged.pop(acknowledgement, None)
        if outcome is None:
            return  # It has timed out before.
        if acknowledgement.error is not None:
            outcome.failed(acknowledgement.error)
        if not self._unacknowledged and not self._opening:
            self._finish()

    def time_out(self) -> None:
        """Stop waiting for acknowledgements. Their outcome is unknown."""
        self._is_late = True
        self._give_up()
        self._finish_if_over()

    def _give_up(self) -> None:
        error = MillstreamError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not flushed within {self._timeout_ms} ms; the outcome is unknown, the batch may be stored",
        )
        for outcome in self._unacknowledged.values():
            outcome.failed(error)
        self._unacknowledged.clear()

    def _finish_if_over(self) -> None:
        if not self._opening and not self._unacknowledged:
            self._finish()

    def _finish(self) -> None:
        self._deadlines.remove(self)
        finished, self._finished = self._finished, None
        if finished is not None:
            finished()


class AppendDeadlines:
    """Times out requests with one timer for all of them, since few requests ever reach their timeout.

    Invariant: while a request waits, the timer is set to the first deadline or earlier.
    """

    def __init__(self) -> None:
        self._at_s: dict[PendingAppends, float] = {}
        self._next_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: PendingAppends, delay_s: float) -> None:
        at_s = asyncio.get_running_loop().time() + delay_s
        self._at_s[waiting] = at_s
        if at_s < self._next_s:
            self._set(at_s)
        assert self._timer is not None, "a deadline is pending"
        assert self._next_s <= at_s, "the timer ends with the first deadline"

    def remove(self, waiting: PendingAppends) -> None:
        self._at_s.pop(waiting, None)

    def _set(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._time_out_due)

    def _time_out_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = [waiting for waiting, at_s in self._at_s.items() if at_s <= now_s]
        for waiting in due:
            del self._at_s[waiting]
        self._timer, self._next_s = None, inf
        if self._at_s:
            self._set(min(self._at_s.values()))
        for waiting in due:
            waiting.time_out()
