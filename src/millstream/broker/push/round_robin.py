"""Gives subscriptions turns in round-robin order, and lets the event loop run other work between rounds.

Invariant: while the queue is not empty, exactly one round is scheduled or running. No subscription is queued twice.

Guarantees: a subscription that wants another turn goes to the end of the queue. So between two of its turns, every
other waiting subscription has one. A round has at most `TURNS_MAX` turns, and at most `ROUND_BYTES` plus one turn.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from millstream.broker.net.memory_limits import MEMORY_RETRY_S

TURNS_MAX = 32
ROUND_BYTES = 1024 * 1024


class Schedulable(Protocol):
    @property
    def wants_turn(self) -> bool: ...

    def take_turn(self) -> int:
        """Send one portion and return its size in bytes."""
        ...

    def fail(self, error: BaseException) -> None:
        """Handle an unexpected failure of a turn."""
        ...


class RoundRobin:
    def __init__(self) -> None:
        self._queue: OrderedDict[Schedulable, None] = OrderedDict()
        self._delayed: OrderedDict[Schedulable, None] = OrderedDict()
        self._is_scheduled = False

    def add(self, taker: Schedulable) -> None:
        """Queue a turn. `taker` may already be queued."""
        self._queue[taker] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def add_later(self, taker: Schedulable) -> None:
        """Queue a turn in `MEMORY_RETRY_S` seconds. The last turn found the memory of responses exhausted."""
        if not self._delayed:
            asyncio.get_running_loop().call_later(MEMORY_RETRY_S, self._add_delayed)
        self._delayed[taker] = None

    def _run(self) -> None:
        assert self._is_scheduled, "one round is scheduled at a time"
        self._is_scheduled = False
        size_bytes = 0
        for _ in range(min(len(self._queue), TURNS_MAX)):
            taker, _ = self._queue.popitem(last=False)
            try:
                size_bytes += taker.take_turn()
            except Exception as error:
                taker.fail(error)
                continue
            if taker.wants_turn and taker not in self._delayed:
                self._queue[taker] = None
            if size_bytes >= ROUND_BYTES:
                break
        if self._queue and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)
        assert self._is_scheduled or not self._queue, "a round is scheduled while the queue is not empty"

    def _add_delayed(self) -> None:
        delayed, self._delayed = self._delayed, OrderedDict()
        for taker in delayed:
            self.add(taker)
