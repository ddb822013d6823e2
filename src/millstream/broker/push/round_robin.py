"""Whoever has something to push gets a turn, one after the other, round and round; in between, the event loop has its.

Invariants: nobody is in the queue twice; whoever had a turn and wants another goes to its end, so between two turns of
one, every other that wants a turn has one. Between two looks of the event loop at everything else lie no more than
`TURNS_MAX` turns, and no more bytes than `ROUND_BYTES` and one turn.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from millstream.broker.net.memory_limits import HUNGRY_S

TURNS_MAX = 32
ROUND_BYTES = 1024 * 1024


class Schedulable(Protocol):
    @property
    def wants_turn(self) -> bool: ...

    def take_turn(self) -> int:
        """Push a bite, and tell how many bytes it has."""
        ...

    def fail(self, error: BaseException) -> None:
        """A turn failed as nobody expected."""
        ...


class RoundRobin:
    def __init__(self) -> None:
        self._queue: OrderedDict[Schedulable, None] = OrderedDict()
        self._hungry: OrderedDict[Schedulable, None] = OrderedDict()
        self._is_due = False

    def add(self, taker: Schedulable) -> None:
        """A turn as soon as it can be."""
        self._queue[taker] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def add_later(self, taker: Schedulable) -> None:
        """A turn after some time, for who found no memory."""
        if not self._hungry:
            asyncio.get_running_loop().call_later(HUNGRY_S, self._feed)
        self._hungry[taker] = None

    def _run(self) -> None:
        self._is_due = False
        size_bytes = 0
        for _ in range(min(len(self._queue), TURNS_MAX)):
            taker, _ = self._queue.popitem(last=False)
            try:
                size_bytes += taker.take_turn()
            except Exception as error:
                taker.fail(error)
                continue
            if taker.wants_turn and taker not in self._hungry:
                self._queue[taker] = None
            if size_bytes >= ROUND_BYTES:
                break
        if self._queue and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _feed(self) -> None:
        hungry, self._hungry = self._hungry, OrderedDict()
        for taker in hungry:
            self.add(taker)
