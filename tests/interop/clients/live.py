"""Runs members and producers of the Python clients in threads of this process."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from interop.clients.client import TIMEOUT_S, Member, Received

T = TypeVar("T")
_PATIENCE_S = 2 * TIMEOUT_S


class LoopThread:
    """An event loop that keeps running between calls."""

    def __init__(self) -> None:
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop.result())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.begin(work).result(_PATIENCE_S)

    def close(self) -> None:
        loop = self._loop.result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        # Unlike a plain loop, a runner waits for closed transports.
        with asyncio.Runner() as runner:
            self._loop.set_result(runner.get_loop())
            runner.get_loop().run_forever()


class PolledMember(Member):
    """A member that polls in a thread of its own, which makes all calls to the consumer."""

    def __init__(self) -> None:
        self._received: list[Received] = []
        self._assigned: frozenset[int] = frozenset()
        self._orders: SimpleQueue[tuple[Callable[[], None], Future[None]]] = SimpleQueue()
        self._leaving = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="member", daemon=True)
        self._thread.start()

    @abstractmethod
    def _open(self) -> None:
        """Create the consumer and subscribe."""

    @abstractmethod
    def _poll(self) -> Sequence[Received]:
        """Wait briefly for messages and return them."""

    @abstractmethod
    def _current(self) -> frozenset[int]:
        """Return the currently assigned partitions."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit the positions, and wait for the answer."""

    @abstractmethod
    def _close(self) -> None:
        """Leave the group and release the consumer."""

    def assigned(self) -> frozenset[int]:
        self._check()
        return self._assigned

    def received(self) -> list[Received]:
        self._check()
        return list(self._received)

    def commit(self) -> None:
        done: Future[None] = Future()
        self._orders.put((self._commit, done))
        done.result(_PATIENCE_S)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "a member does not end"
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"a member failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            self._open()
            try:
                while not self._leaving.is_set():
                    self._received += self._poll()
                    self._assigned = self._current()
                    self._obey()
            finally:
                self._assigned = frozenset()
                self._close()
        except BaseException as failure:
            self._failure = failure

    def _obey(self) -> None:
        try:
            order, done = self._orders.get_nowait()
        except Empty:
            return
        try:
            order()
        except BaseException as failure:
            done.set_exception(failure)
        else:
            done.set_result(None)
