"""Decides whether a failed operation is retried, and how long to wait before the retry."""

import asyncio

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.sdk.responses import NotLeaderError
from millstream.seams.entropy import Entropy

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
ATTEMPT_MIN_S = 0.1
"""No attempt starts with less time left: it would fail with a timeout, which explains less than the previous error."""
FEW_ATTEMPTS = 4
"""Maximum number of attempts for errors that are usually permanent.

Metadata of a new topic may still be on its way, but the name may also be misspelled. Bytes may have been damaged in
transit, or on a disk.
"""

_FEW = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE)


def backoff_s(attempts: int, chance: float) -> float:
    """Return the backoff after a failure that follows `attempts` other failures in a row.

    The backoff doubles up to BACKOFF_MAX_S. `chance` (0 to 1) is its jitter, so that clients that failed together do
    not retry together.
    """
    return min(BACKOFF_FIRST_S * 2.0 ** min(attempts, 30), BACKOFF_MAX_S) * (0.5 + chance)


def chance(entropy: Entropy) -> float:
    """Draw the jitter of a backoff, from 0 to 1."""
    return int.from_bytes(entropy.token(2), "big") / 65536


class Deadline:
    """The time on the event loop's clock by which an operation must finish."""

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
        """Return the remaining time, at most `limit_s`, and at least 1 ms because a timer must not be 0."""
        return max(0.001, min(self.left_s, limit_s))


class Attempts:
    """Counts the attempts of one operation, and waits before each retry."""

    def __init__(self, entropy: Entropy, deadline: Deadline) -> None:
        self._entropy = entropy
        self._deadline = deadline
        self._pauses = 0
        self._few = 0
        self._last: MillstreamError | None = None
        self._leader_epoch: int = NO_LEADER_EPOCH

    def follows(self, error: MillstreamError, known_epoch: int) -> bool:
        """True if the operation is tried again at once, at a newer leader that the refusal names.

        `known_epoch` is the epoch of the leader that the next attempt would ask. The named epoch must be newer than
        that of the previous refusal. So two brokers that name each other are not asked in a busy loop.
        """
        if not isinstance(error, NotLeaderError) or self._deadline.left_s < ATTEMPT_MIN_S:
            return False
        if known_epoch < error.leader_epoch or error.leader_epoch <= self._leader_epoch:
            return False
        self._leader_epoch, self._last = error.leader_epoch, error
        return True

    async def again(self, error: MillstreamError) -> bool:
        """Wait for the backoff and return True; return False at once if the error is final or the time is too short."""
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
        """Wait for the backoff of a retry and return True; return False at once if the time is too short."""
        wait_s = backoff_s(self._pauses, chance(self._entropy))
        if wait_s + ATTEMPT_MIN_S >= self._deadline.left_s:
            return False
        self._pauses += 1
        await asyncio.sleep(wait_s)
        return True

    def root_cause(self, error: MillstreamError) -> MillstreamError:
        """Return the error to report after the last attempt failed with `error`.

        If the last attempt only ran into the operation's deadline, an earlier attempt's error explains more and is
        returned instead.
        """
        return self._last if self._last is not None and self._is_of_the_deadline(error) else error

    def _is_of_the_deadline(self, error: MillstreamError) -> bool:
        late = error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
        return late and self._deadline.left_s < ATTEMPT_MIN_S
