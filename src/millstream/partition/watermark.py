"""Tracks the high watermark of a leadership and wakes the readers and writers that wait for it.

The high watermark is the offset below which all in-sync replicas have the messages. Readers see nothing above it. A
write with acks=all is acknowledged when the high watermark has passed it. A write with acks=1 is acknowledged when the
leader's own log is flushed beyond it (written, if the flush policy requires no flush). On a single broker both offsets
are the same.

Invariants: high watermark <= leader's flushed offset. Within a leader epoch neither offset moves back. Only a
truncation moves them back, and it ends the epoch. Each waiter is woken once, after the offset that it waits for has
been passed. An acknowledgement succeeds only under the leader epoch that appended the write. When an epoch begins, no
write of an earlier epoch is waiting.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from millstream.model.ids import LeaderEpoch, Offset
from millstream.model.waiters import Cancel, OffsetWaiter, Waiters

_logger = logging.getLogger(__name__)


ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0


class Acknowledgement(Struct, eq=False):
    """A write that waits for the high watermark, or with acks=1 for the leader's flush, to pass its last offset.

    It completes once and calls its waiters immediately, before the broker handles another request.
    """

    offset: int
    acks: int = ACKS_ALL
    is_over: bool = False
    error: BaseException | None = None
    """None if the write is acknowledged. Otherwise the outcome of the write is unknown, and this is
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER after a change of leader, or REQUEST_TIMED_OUT when the broker stops."""
    _callback: "Callable[[Acknowledgement], None] | None" = None
    _others: "list[Callable[[Acknowledgement], None]] | None" = None

    def then(self, callback: Callable[["Acknowledgement"], None]) -> None:
        """Call `callback` when the acknowledgement completes, possibly before this method returns."""
        if self.is_over:
            callback(self)
        elif self._callback is None:
            self._callback = callback
        else:
            self._others = [*(self._others or ()), callback]

    def wake(self) -> None:
        """Complete the acknowledgement, because the offset that this write waits for was passed."""
        assert not self.is_over, "an acknowledgement completes once"
        self.is_over = True
        callback = self._callback
        if callback is not None:
            self._callback = None
            try:
                callback(self)
            except Exception:  # A failed callback must not affect other waiters.
                _logger.exception("acknowledgement callback failed")
        if self._others is not None:
            self._call_others()

    def _call_others(self) -> None:
        for callback in self._others or ():
            try:
                callback(self)
            except Exception:
                _logger.exception("acknowledgement callback failed")
        self._others = None

    def fail(self, error: BaseException) -> None:
        """Complete with an error: the write is lost, or its outcome is unknown."""
        self.error = error
        self.wake()

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for completion and raise `error`. The cancellation of one waiter does not affect the others."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Acknowledgement) -> None:
            if not future.done():
                future.set_result(None)

        self.then(wake)
        yield from future
        if self.error is not None:
            raise self.error


class Watermark:
    """The high watermark and its waiters."""

    __slots__ = ("_join", "_waiters", "leader_epoch", "offset", "own_flushed")

    def __init__(self, offset: Offset, leader_epoch: LeaderEpoch) -> None:
        self.offset = offset
        self.own_flushed = offset
        """The offset below which the leader itself acknowledges messages."""
        self.leader_epoch = leader_epoch
        self._waiters = Waiters()
        self._join = self._waiters.join

    @property
    def waiting(self) -> int:
        """Number of waiting readers and writers."""
        return len(self._waiters)

    def advance(self, *, own_flushed: Offset, high_watermark: Offset) -> None:
        """Advance both offsets and wake the waiters that they pass. A lower offset is ignored."""
        assert high_watermark <= own_flushed, "the leader is one of the in-sync replicas"
        if own_flushed > self.own_flushed:
            self.own_flushed = own_flushed
        if high_watermark > self.offset:
            self.offset = high_watermark
            if self._waiters:
                self._waiters.wake_below(high_watermark)
        if own_flushed > high_watermark and self._waiters:
            self._wake_leader_acks(own_flushed)

    def _wake_leader_acks(self, own_flushed: Offset) -> None:
        """Wake the writes with acks=1 between the two offsets. On a single broker there are none."""

        def is_flushed(waiter: OffsetWaiter) -> bool:
            is_leader_only = isinstance(waiter, Acknowledgement) and waiter.acks == ACKS_LEADER
            return is_leader_only and waiter.offset < own_flushed

        for waiter in self._waiters.take(is_flushed):
            waiter.wake()

    def begin_epoch(self, leader_epoch: LeaderEpoch, *, own_flushed: Offset, high_watermark: Offset) -> None:
        """Continue under a later leader epoch with these offsets."""
        assert leader_epoch > self.leader_epoch, "a leader epoch only increases"
        left = self._waiters.take(_is_acknowledgement)
        assert not left, "writes of an earlier epoch have failed"
        self.leader_epoch = leader_epoch
        self.advance(own_flushed=own_flushed, high_watermark=high_watermark)

    def wait(self, offset: Offset, callback: Callable[[], None]) -> Cancel:
        """Call `callback` once the high watermark has passed `offset`, which must be at or above it."""
        assert offset >= self.offset, "a reader below the high watermark does not wait"
        return self._waiters.add(offset, callback)

    def acknowledge(self, offset: int, *, acks: int) -> Acknowledgement | None:
        """Return the acknowledgement of the write that ends at `offset`, or None if it is acknowledged or acks=0."""
        if acks == ACKS_NONE or offset < (self.offset if acks == ACKS_ALL else self.own_flushed):
            return None
        acknowledgement = Acknowledgement(offset, acks=acks)
        self._join(acknowledgement)
        return acknowledgement

    def fail(self, offset: Offset, error: BaseException) -> None:
        """Fail the acknowledgements at or above `offset`. Readers continue to wait."""

        def is_failed(waiter: OffsetWaiter) -> bool:
            return _is_acknowledgement(waiter) and waiter.offset >= offset

        for waiter in self._waiters.take(is_failed):
            assert isinstance(waiter, Acknowledgement)
            waiter.fail(error)

    def wake_readers(self) -> None:
        """Wake all readers, because the leadership is over."""
        for waiter in self._waiters.take(lambda one: not _is_acknowledgement(one)):
            waiter.wake()

    def truncated(self, end_offset: Offset, error: BaseException) -> None:
        """End the leader epoch after the log was truncated at `end_offset`. All pending writes fail with `error`."""
        self.fail(Offset(0), error)
        self.offset = min(self.offset, end_offset)
        self.own_flushed = min(self.own_flushed, end_offset)


def _is_acknowledgement(waiter: OffsetWaiter) -> bool:
    return isinstance(waiter, Acknowledgement)
