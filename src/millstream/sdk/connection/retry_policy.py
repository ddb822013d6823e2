"""How long to go on trying, and how long to wait in between."""

import asyncio

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.seams.entropy import Entropy

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
ATTEMPT_MIN_S = 0.1
"""Time below which no attempt is begun: it would end in our own deadline, which says less than the error before it."""
FEW_ATTEMPTS = 4
"""How often what may pass, but mostly does not, is tried: news of a new topic may be under way, a typing error stays;
bytes may have been damaged on their way, or on a disk."""

_FEW = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE)


class Deadline:
    """A point on the event loop's clock by which an operation is to be over."""

    __slots__ = ("_end_s", "_loop")

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - self._loop.time())

    @property
    def is_over(self) -> bool:
        return self.left_s == 0

    def within(self, limit_s: float) -> float:
        """What is left, but no more than `limit_s` and never quite nothing: a timer needs something to run on."""
        return max(0.001, min(self.left_s, limit_s))


class Attempts:
    """Decides whether an operation that failed is tried again, and waits before it is.

    The waits double, and are spread by chance so that clients that failed together do not come back together.
    """

    def __init__(self, entropy: Entropy, deadline: Deadline) -> None:
        self._entropy = entropy
        self._deadline = deadline
        self._wait_s = BACKOFF_FIRST_S
        self._few = 0
        self._last: MillstreamError | None = None

    async def again(self, error: MillstreamError) -> bool:
        """True after the wait; False, at once, when the error is final or too little time would be left for more."""
        if not self._is_of_the_deadline(error):
            self._last = error
        if not error.code.retriable:
            return False
        if error.code in _FEW:
            self._few += 1
            if self._few >= FEW_ATTEMPTS:
                return False
        return await self.pause()

    async def pause(self) -> bool:
        """Wait as before a next attempt, whatever the reason; False when there is no time for one after it."""
        chance = int.from_bytes(self._entropy.token(2), "big") / 65536
        wait_s = self._wait_s * (0.5 + chance)
        if wait_s + ATTEMPT_MIN_S >= self._deadline.left_s:
            return False
        self._wait_s = min(self._wait_s * 2, BACKOFF_MAX_S)
        await asyncio.sleep(wait_s)
        return True

    def account(self, error: MillstreamError) -> MillstreamError:
        """What to report when `error` ended the last attempt.

        That our own deadline came in the middle of it explains nothing where an attempt before failed for a reason
        of its own: then that one is the account.
        """
        return self._last if self._last is not None and self._is_of_the_deadline(error) else error

    def _is_of_the_deadline(self, error: MillstreamError) -> bool:
        late = error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
        return late and self._deadline.left_s < ATTEMPT_MIN_S
