"""Completes a read when it has enough data or its wait time has expired.

A read that finds enough data in the page cache completes immediately. Otherwise a `LongPoll` waits for more data with a
few callbacks. Only a read that needs several steps becomes a task: it reads from disk, or more partitions than one
slice has.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from millstream.broker.dispatch.request import Answer, DeferredResponse, Result, Work
from millstream.broker.net.memory_limits import MEMORY_RETRY_S
from millstream.model.waiters import Cancel

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a response, also if the reader accepts more. A larger one would delay other requests."""

WAIT_MS_MAX = 300_000


class ReadPass(Protocol):
    """One pass over the partitions of a request. Errors of partitions are part of the result and are not raised."""

    @property
    def is_finished(self) -> bool:
        """True once the pass has read every wanted partition."""
        ...

    @property
    def is_enough(self) -> bool:
        """True if the result of a finished pass can be sent without waiting for more data."""
        ...

    @property
    def is_hungry(self) -> bool:
        """True if there was data, but no memory for any of it."""
        ...

    async def go_on(self) -> None:
        """Continue an unfinished pass: read from disk, or read the next slice."""
        ...

    def waits(self, wake: Callable[[], None]) -> Iterable[list[Cancel]]:
        """Register `wake` to be called once there is more data than this finished pass has seen, possibly at once.

        Each item of the result registers one slice of partitions and holds the functions that cancel it.
        """
        ...


P = TypeVar("P", bound=ReadPass)


class PollRequest(Protocol[P]):
    """A request whose partitions can be read repeatedly."""

    def read(self) -> P:
        """Begin a pass: read the first slice, or up to the first partition that must be read from disk."""
        ...

    def answer(self, done: P) -> Answer:
        """Encode the result of a finished pass."""
        ...


def poll(request: PollRequest[P], max_wait_ms: int) -> Result:
    """Answer at once if there is enough data or the request does not wait; otherwise return a deferred answer."""
    reading = request.read()
    if reading.is_finished and (max_wait_ms <= 0 or reading.is_enough):
        return request.answer(reading)
    return LongPoll(request, reading).begin(min(max_wait_ms, WAIT_MS_MAX))


class LongPoll(Generic[P]):
    """One waiting request.

    Invariant: from `begin` until the answer, the request is registered with its partitions, or a call of `_read_again`
    is scheduled, or `_run` runs as a task.
    """

    def __init__(self, request: PollRequest[P], reading: P) -> None:
        self._request = request
        self._reading = reading
        self._is_over = False
        self._is_woken = False
        self._wake: Callable[[], None] = self._read_soon
        self._cancels: list[Cancel] = []

    def begin(self, wait_ms: int) -> DeferredResponse | Work:
        """Start waiting for more data."""
        self._is_over = wait_ms <= 0
        self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 0) / 1000, self.hurry)
        if not self._reading.is_finished:
            return self._work()
        self._later = DeferredResponse(self.hurry)
        self._wait()
        return self._later

    def hurry(self) -> None:
        """Answer with the available data: the wait time has expired, or the connection drains or has ended."""
        self._is_over = True
        self._wake()

    def _read_soon(self) -> None:
        """Schedule a read after an append. It does not run here, because the caller must finish the append first."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._read_again)

    def _read_again(self) -> None:
        assert self._wake is not _ignore, "a poll that was answered, or runs as a task, does not read here"
        self._is_woken = False
        self._forget()
        try:
            reading = self._reading = self._request.read()
            is_enough = reading.is_finished and (self._is_over or reading.is_enough)
            answer = self._request.answer(reading) if is_enough else None
        except Exception as error:
            self._timer.cancel()
            self._later.become(Work(_fail(error)))
            return
        if answer is not None:
            self._timer.cancel()
            self._wake = _ignore  # The bound method would keep all data of this read in memory.
            self._later.finish(answer)
        elif reading.is_finished:
            self._wait()
        else:
            self._later.become(self._work())

    def _wait(self) -> None:
        """Register with the partitions of the finished pass, at most one slice."""
        for cancels in self._reading.waits(self._wake):
            self._cancels += cancels
        self._retry_for_memory()
        assert self._cancels or self._is_woken, "a waiting poll is registered, or its next read is scheduled"

    def _retry_for_memory(self) -> None:
        """Schedule another read if the last one had no memory for its data: no partition will wake this poll."""
        if self._reading.is_hungry:
            self._cancels.append(asyncio.get_running_loop().call_later(MEMORY_RETRY_S, self._wake).cancel)

    def _work(self) -> Work:
        self._wake = _ignore
        return Work(self._run(), self.hurry)

    async def _run(self) -> Answer:
        """Read and wait, in slices, until there is enough data or the wait time has expired."""
        try:
            while True:
                reading = self._reading
                while not reading.is_finished:
                    await reading.go_on()
                if self._is_over or reading.is_enough:
                    return self._request.answer(reading)
                await self._wait_for_data()
                self._reading = self._request.read()
        finally:
            self._timer.cancel()

    async def _wait_for_data(self) -> None:
        arrived = asyncio.Event()
        self._wake = arrived.set
        try:
            for cancels in self._reading.waits(arrived.set):
                self._cancels += cancels
                await asyncio.sleep(0)
            self._retry_for_memory()
            if not self._is_over:
                await arrived.wait()
        finally:
            self._forget()

    def _forget(self) -> None:
        for cancel in self._cancels:
            cancel()
        self._cancels = []


async def _fail(error: Exception) -> Answer:
    """Raise `error` inside a task, where unexpected failures of requests are handled."""
    raise error


def _ignore() -> None:
    """Ignore a wake-up: the poll is answered, or its task reads anyway."""
