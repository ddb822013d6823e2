"""How long to go on trying, and how long to wait in between."""

import asyncio

from penstock.model.entropy import Entropy
from penstock.model.errors import ErrorCode, PenstockError

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
FEW_ATTEMPTS = 4
"""How often what may pass, but mostly does not, is tried: news of a new topic may be under way, a typing error stays;
bytes may have been damaged on their way, or on a disk."""

_FEW = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE)


class Deadline:
    """A point on the event loop's clock by which an operation is to be over."""

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

    async def again(self, error: PenstockError) -> bool:
        """True after the wait; False, at once, when the error is final or the wait would outlast the deadline."""
        if not error.code.retriable:
            return False
        if error.code in _FEW:
            self._few += 1
            if self._few >= FEW_ATTEMPTS:
                return False
        return await self.pause()

    async def pause(self) -> bool:
        """Wait as before a next attempt, whatever the reason; False when the deadline comes first."""
        chance = int.from_bytes(self._entropy.token(2), "big") / 65536
        wait_s = self._wait_s * (0.5 + chance)
        if wait_s >= self._deadline.left_s:
            return False
        self._wait_s = min(self._wait_s * 2, BACKOFF_MAX_S)
        await asyncio.sleep(wait_s)
        return True
