"""The thread behind a client that blocks: one event loop, on which everything the client does runs.

Invariants:
- The thread is started when it is first needed and ends with the client: closed, garbage, or when the process exits.
  A client that was not closed is closed then, so that what it holds is sent, as far as a few seconds allow.
- Nothing that runs on it ends it, whatever it raises: others use it too.
- Nobody waits for what will not run: what was handed over is done, or given up when the thread ends.
- It is a daemon, and nothing waits for it without a limit, so that no process hangs in it at its exit.
- In a forked child the thread does not exist; nobody tries to end it there.
"""

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from millstream.model.errors import ErrorCode, MillstreamError

T = TypeVar("T")
Farewell = Callable[[], Coroutine[Any, Any, None]]

FAREWELL_S = 10.0
"""How long a client that nobody closed may take to close."""
CANCEL_S = 1.0
JOIN_S = FAREWELL_S + 2 * CANCEL_S
"""How long the end of the thread is waited for."""

NAME = "millstream-client"

_log = logging.getLogger("millstream.sdk")


class Portal:
    """Runs coroutines on the thread's event loop for callers in any other thread."""

    callers_wait = True
    """Whether callers may be held up where they are."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: Callable[[], object] | None = None
        self._waiting: set[Future[Any]] = set()
        self._farewell: Farewell | None = None

    def at_end(self, farewell: Farewell) -> None:
        """Await this, for a while, before the thread ends, however that comes; it must not hold the portal."""
        self._farewell = farewell

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; when the caller is interrupted, the work is cancelled.

        CLIENT_MISUSED on the portal's own thread, where waiting would never end; CLIENT_CLOSED when it ends meanwhile.
        """
        try:
            loop = self._enter()
        except BaseException:
            work.close()
            raise
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            work.close()
            raise _closed() from None
        self._waiting.add(future)
        if loop.is_closed():
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._waiting.discard(future)

    def call(self, make: Callable[[], T]) -> T:
        """What `make` gives, called on the event loop."""

        async def call() -> T:
            return make()

        return self.run(call())

    def close(self) -> None:
        """End the thread; what still runs on it is cancelled. Nothing on the thread itself, which would not wait."""
        if self._finalizer is not None and threading.current_thread() is not self._thread:
            self._finalizer()

    def _enter(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            with self._starting:
                loop = self._loop or self._start()
        if threading.current_thread() is self._thread:
            text = (
                "a callback of a client that blocks runs on the client's own thread and must not wait there; "
                "hand the work to another thread"
            )
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        return loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = _new_event_loop()
        target = threading.Thread(target=_live, args=(loop, self._waiting, self._farewell), name=NAME, daemon=True)
        target.start()
        self._finalizer = weakref.finalize(self, _end, loop, target, os.getpid())
        self._thread = target
        self._loop = loop
        return loop


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _live(loop: asyncio.AbstractEventLoop, waiting: set[Future[Any]], farewell: Farewell | None) -> None:
    try:
        _run(loop)
        if farewell is not None:
            loop.run_until_complete(_say(farewell))
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        for future in list(waiting):
            future.cancel()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Until the loop is stopped: SystemExit and its like, which leave it, were raised by one of many who use it."""
    while True:
        try:
            loop.run_forever()
            return
        except BaseException:
            _log.exception("something tried to end the client's thread, which goes on")


async def _say(farewell: Farewell) -> None:
    try:
        async with asyncio.timeout(FAREWELL_S):
            await farewell()
    except Exception as error:
        _log.warning("a client that nobody closed did not end well: %s", error or type(error).__name__)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    if os.getpid() != process or not thread.is_alive():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(JOIN_S)
        if thread.is_alive():
            _log.warning("the thread of a client did not end in %g s; it is left behind", JOIN_S)


def _closed() -> MillstreamError:
    return MillstreamError(ErrorCode.CLIENT_CLOSED, "this client was closed meanwhile")
