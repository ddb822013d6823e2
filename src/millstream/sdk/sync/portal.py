"""Runs the event loop of a blocking client on a thread of its own.

Guarantees:
- The thread starts on first use. It ends when the client is closed or garbage collected, or when the process exits. A
  client that was not closed is closed then, which sends its buffered messages within a few seconds.
- No exception of a coroutine or callback ends the thread, because other callers use it too.
- No caller waits for a coroutine that will not run: a submitted coroutine completes, or is cancelled when the thread
  ends.
- A coroutine whose caller was interrupted has ended when the caller goes on, unless it takes longer than `CANCEL_S`.
- The thread is a daemon, and every wait for it has a timeout, so that a process does not hang at exit.
- The thread does not exist in a forked child process, and the child does not try to stop it.
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
from millstream.process.log_event import LogEvent

T = TypeVar("T")
CloseClient = Callable[[], Coroutine[Any, Any, None]]

CLOSE_TIMEOUT_S = 10.0
"""Timeout for closing a client that the application did not close."""
CANCEL_S = 1.0
JOIN_S = CLOSE_TIMEOUT_S + 2 * CANCEL_S
"""Timeout for joining the thread."""

NAME = "millstream-client"

_log = logging.getLogger("millstream.sdk")


class Portal:
    """Runs coroutines on the thread's event loop for callers in any other thread."""

    callers_wait = True
    """Whether a call may block its thread."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: Callable[[], object] | None = None
        self._waiting: set[Future[Any]] = set()
        self._close_client: CloseClient | None = None

    def at_end(self, close_client: CloseClient) -> None:
        """Await this with a timeout before the thread ends. The function must not hold a reference to the portal."""
        self._close_client = close_client

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and return its result. An interrupt of the caller cancels the coroutine.

        Raises CLIENT_MISUSED on the portal's own thread, where waiting would deadlock, and CLIENT_CLOSED if the portal
        closes meanwhile.
        """
        try:
            loop = self._enter()
        except BaseException:
            work.close()
            raise
        future: Future[T] | None = None
        try:  # A signal handler may raise at any line.
            try:
                future = asyncio.run_coroutine_threadsafe(work, loop)
            except RuntimeError:
                work.close()
                raise _closed() from None
            self._waiting.add(future)
            if loop.is_closed():
                future.cancel()
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            if future is None or not future.done():
                _cancel(work, loop)
            raise
        finally:
            if future is not None:
                self._waiting.discard(future)

    def call(self, make: Callable[[], T]) -> T:
        """Call `make` on the event loop and return its result."""

        async def call() -> T:
            return make()

        return self.run(call())

    def close(self) -> None:
        """Stop the thread and cancel what still runs on it. On the thread itself this does nothing."""
        if self._finalizer is not None and threading.current_thread() is not self._thread:
            self._finalizer()

    def _enter(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            with self._starting:
                loop = self._loop or self._start()
        if threading.current_thread() is self._thread:
            text = (
                "a callback of a blocking client runs on the client's own thread and must not block it; "
                "make this call in another thread"
            )
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        return loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = _new_event_loop()
        target = threading.Thread(
            target=_run_thread, args=(loop, self._waiting, self._close_client), name=NAME, daemon=True
        )
        target.start()
        self._finalizer = weakref.finalize(self, _end, loop, target, os.getpid())
        self._thread = target
        self._loop = loop
        return loop


def _cancel(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
    """Cancel a coroutine, whether its task has begun or not, and wait until it has ended."""
    ended = threading.Event()

    def cancel() -> None:
        task = next((task for task in asyncio.all_tasks(loop) if task.get_coro() is work), None)
        if task is None:
            work.close()
            ended.set()
            return
        task.add_done_callback(lambda _: ended.set())
        task.cancel()

    try:
        loop.call_soon_threadsafe(cancel)
    except RuntimeError:
        return  # The loop is closed, and has cancelled its tasks.
    ended.wait(CANCEL_S)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _run_thread(loop: asyncio.AbstractEventLoop, waiting: set[Future[Any]], close_client: CloseClient | None) -> None:
    try:
        _run(loop)
        if close_client is not None:
            loop.run_until_complete(_close_with_timeout(close_client))
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
    """Run the loop until it is stopped. SystemExit and similar exceptions of one callback leave it running."""
    while True:
        try:
            loop.run_forever()
            return
        except BaseException:
            _log.exception("exception in a callback ignored; the client's thread continues")


async def _close_with_timeout(close_client: CloseClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await close_client()
    except Exception as error:
        _log.warning(LogEvent("closing an unclosed client failed", error=str(error) or type(error).__name__))


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    if os.getpid() != process or not thread.is_alive():
        return
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(JOIN_S)
        if thread.is_alive():
            _log.warning(LogEvent("client thread did not stop, abandoned", timeout_s=JOIN_S))


def _closed() -> MillstreamError:
    return MillstreamError(ErrorCode.CLIENT_CLOSED, "this client was closed while a call was waiting")
