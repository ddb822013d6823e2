"""Tests that a child process is restarted when it ends, and stays ended after `stop`."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.supervisor import children
from millstream.supervisor.children import Child

WAIT_S = 60.0


class Watched:
    """A child that runs a program, with its output and its exit codes."""

    def __init__(self, program: str, *, hopeless: tuple[int, ...] = ()) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.ends: asyncio.Queue[int] = asyncio.Queue()
        command = [sys.executable, "-c", program]
        self.child = Child(
            "child",
            lambda: command,
            os.environ,
            hopeless=hopeless,
            on_output=self.lines.put_nowait,
            on_error=self.lines.put_nowait,
            on_end=self.ends.put_nowait,
        )


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(WAIT_S):
            await story()

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 0.001)


SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def test_a_killed_child_is_restarted() -> None:
    async def story() -> None:
        watched = Watched(SLEEPER)
        watched.child.start()
        assert await watched.lines.get() == b"up\n"
        first = watched.child.pid
        assert first is not None
        os.kill(first, 9)
        assert await watched.ends.get() == -9
        assert await watched.lines.get() == b"up\n"
        assert watched.child.pid not in (None, first)
        await watched.child.stop(WAIT_S)
        assert await watched.ends.get() == -15
        assert watched.child.pid is None

    run(story)


@pytest.mark.parametrize(("program", "code"), [(SLEEPER, -15), (STUBBORN, -9)])
def test_a_stopped_child_ends_and_is_not_restarted(program: str, code: int) -> None:
    async def story() -> None:
        watched = Watched(program)
        watched.child.start()
        await watched.lines.get()
        await watched.child.stop(WAIT_S if code == -15 else 0.05)
        assert await watched.ends.get() == code
        assert watched.child.pid is None

    run(story)


def test_a_child_with_a_hopeless_exit_code_is_not_restarted() -> None:
    async def story() -> None:
        watched = Watched("import sys; print('up', flush=True); sys.exit(8)", hopeless=(8,))
        watched.child.start()
        assert await watched.ends.get() == 8
        await watched.child.stop(WAIT_S)
        assert watched.lines.qsize() == 1

    run(story)


def test_a_child_that_keeps_ending_is_restarted_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(children, "PAUSE_MAX_S", 0.005)

    async def story() -> None:
        watched = Watched("raise SystemExit(1)")
        watched.child.start()
        for _ in range(5):
            assert await watched.ends.get() == 1
        await watched.child.stop(WAIT_S)

    run(story)
    pauses = [record.pause_s for record in caplog.records if hasattr(record, "pause_s")]
    assert pauses[:4] == [0.001, 0.002, 0.004, 0.005]


def test_a_child_can_be_stopped_while_it_waits_for_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PAUSE_MIN_S", 600.0)

    async def story() -> None:
        watched = Watched("raise SystemExit(1)")
        watched.child.start()
        await watched.ends.get()
        await watched.child.stop(WAIT_S)
        assert watched.child.pid is None

    run(story)


def test_a_missing_command_is_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there = tmp_path / "program"
    asked = []

    def command() -> list[str]:
        asked.append(there.exists())
        if len(asked) == 2:
            there.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SLEEPER}"\n')
            there.chmod(0o700)
        return [str(there)]

    async def story() -> None:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        child = Child("child", command, os.environ, on_output=lines.put_nowait)
        child.start()
        assert await lines.get() == b"up\n"
        await child.stop(WAIT_S)

    run(story)
    assert asked == [False, False]
    assert "child not started" in caplog.messages
