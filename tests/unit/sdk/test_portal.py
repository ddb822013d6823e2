"""Tests the thread that runs the event loop of a blocking client."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.sync.portal import Portal


async def thread_here() -> threading.Thread:
    return threading.current_thread()


async def forever(begun: threading.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


def test_work_runs_on_one_daemon_thread_that_ends_with_the_portal() -> None:
    portal = Portal()
    thread = portal.run(thread_here())
    assert thread is portal.run(thread_here())
    assert thread is portal.call(threading.current_thread)
    assert thread.daemon
    portal.close()
    assert not thread.is_alive()
    portal.close()


def test_exceptions_are_raised_in_the_caller() -> None:
    portal = Portal()

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        portal.run(fail())
    portal.close()


def test_many_threads_share_one_portal() -> None:
    portal = Portal()

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: portal.run(double(number)), range(200)))
    assert found == [number * 2 for number in range(200)]
    portal.close()


def test_a_waiting_call_raises_client_closed_when_the_portal_closes() -> None:
    portal = Portal()
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: portal.run(forever(begun)))
        assert begun.wait(60)
        portal.close()
        error = waiting.exception(60)
    assert isinstance(error, MillstreamError)
    assert error.code is ErrorCode.CLIENT_CLOSED
    with pytest.raises(MillstreamError) as refused:
        portal.run(thread_here())
    assert refused.value.code is ErrorCode.CLIENT_CLOSED


def test_a_blocking_call_on_the_portals_own_thread_is_refused() -> None:
    portal = Portal()

    async def wait_within() -> None:
        portal.run(thread_here())

    with pytest.raises(MillstreamError, match="must not block it") as refused:
        portal.run(wait_within())
    assert refused.value.code is ErrorCode.CLIENT_MISUSED
    portal.close()


def test_an_interrupted_caller_cancels_its_work() -> None:
    portal = Portal()
    cancelled = threading.Event()
    caller = threading.get_ident()

    async def work() -> None:
        while sys._current_frames()[caller].f_code.co_name != "wait":  # noqa: ASYNC110  # a thread does not signal that it waits
            await asyncio.sleep(0)
        try:
            while True:  # A signal just before the thread waits does not wake it.
                signal.pthread_kill(caller, signal.SIGINT)
                await asyncio.sleep(1)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.run(work())
    assert cancelled.wait(60)
    portal.close()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_system_exit_in_a_coroutine_does_not_end_the_thread(kind: type[BaseException]) -> None:
    portal = Portal()
    thread = portal.run(thread_here())

    async def leave() -> None:
        raise kind

    def leave_at_once() -> None:
        raise kind

    with pytest.raises(kind):
        portal.run(leave())
    portal.call(lambda: asyncio.get_running_loop().call_soon(leave_at_once))
    assert portal.run(thread_here()) is thread
    portal.close()
    assert not thread.is_alive()


def test_the_thread_of_a_garbage_collected_portal_ends() -> None:
    portal = Portal()
    thread = portal.run(thread_here())
    del portal
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("closed", [True, False])
def test_the_client_is_closed_before_the_thread_ends(closed: bool) -> None:
    portal = Portal()
    closed_on = []

    async def close_client() -> None:
        closed_on.append(threading.current_thread())

    portal.at_end(close_client)
    thread = portal.run(thread_here())
    if closed:
        portal.close()
    del portal
    gc.collect()
    thread.join(60)
    assert closed_on == [thread]


def test_a_failed_close_at_thread_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    portal = Portal()

    async def close_client() -> None:
        raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, "two messages were lost")

    portal.at_end(close_client)
    thread = portal.run(thread_here())
    portal.close()
    assert not thread.is_alive()
    assert "two messages were lost" in caplog.text


def test_a_process_exits_although_its_portal_was_not_closed() -> None:
    program = """
import asyncio, threading
from millstream.sdk.sync.portal import Portal
portal = Portal()
begun = threading.Event()
async def forever():
    begun.set()
    await asyncio.Event().wait()
def wait():
    try:
        portal.run(forever())
    except Exception:
        pass
threading.Thread(target=wait, daemon=True).start()
begun.wait()
print("end")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")
