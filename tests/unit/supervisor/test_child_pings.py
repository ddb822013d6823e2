"""Tests that a child process that does not answer pings is reported until it answers."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, Control, ControlRequest
from millstream.process.findings import Finding
from millstream.supervisor.child_pings import ChildPings
from millstream.supervisor.control_socket import ControlSocket

PID = os.getpid()
WAIT_S = 60.0


async def served(request: ControlRequest) -> tuple[ClusterFacts, ...]:
    return ()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's timeout bounds it."""
    while not holds():
        await asyncio.to_thread(time.sleep, 0.001)


def play(story: Callable[[ChildPings, list[None]], Awaitable[None]], serving: Sequence[int] = ()) -> None:
    """Run a story with pings that follow each other quickly; the list has an entry per ping."""

    async def whole() -> None:
        pings, sent = ChildPings(lambda: serving, period_s=0.002, timeout_s=0.001), list[None]()
        running = asyncio.create_task(pings.run())
        try:
            async with asyncio.timeout(WAIT_S):
                await story(pings, sent)
        finally:
            running.cancel()

    asyncio.run(whole())


def test_a_silent_child_is_reported_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def story(pings: ChildPings, sent: list[None]) -> None:
        child = pings.connected(PID, lambda: sent.append(None))
        assert pings.findings("the gateway", PID) == []
        await until(lambda: pings.findings("the gateway", PID) != [])
        (finding,) = pings.findings("the gateway", PID, blocks_ready=True)
        assert finding.text.startswith("the gateway has not answered since 20")
        assert f"its process {PID} is stopped, hangs or is overloaded; `kill -KILL {PID}`" in finding.text
        assert (finding.is_problem, finding.blocks_ready) == (True, True)
        assert pings.findings("another", PID + 1) == []
        child.answered(())
        assert pings.findings("the gateway", PID) == []

    play(story)
    assert "child does not answer" in caplog.text


def test_a_serving_child_without_a_connection_is_reported_until_it_connects() -> None:
    async def story(pings: ChildPings, sent: list[None]) -> None:
        await until(lambda: pings.findings("the gateway", PID) != [])
        assert "has not answered since" in pings.findings("the gateway", PID)[0].text
        child = pings.connected(PID, lambda: child.answered(()))
        assert pings.findings("the gateway", PID) == []

    play(story, serving=[PID])


def test_a_silent_child_gets_no_second_ping() -> None:
    async def story(pings: ChildPings, sent: list[None]) -> None:
        answering = list[None]()

        def answer() -> None:
            answering.append(None)
            other.answered(())

        pings.connected(PID, lambda: sent.append(None))
        other = pings.connected(PID + 1, answer)
        await until(lambda: len(answering) > 3)
        assert len(sent) == 1

    play(story)


def test_the_problems_of_an_answer_are_reported_with_the_name_of_the_child() -> None:
    async def story(pings: ChildPings, sent: list[None]) -> None:
        child = pings.connected(PID, lambda: child.answered(["partition a-0 refuses writes"]))
        wanted = [Finding("broker 1: partition a-0 refuses writes")]
        await until(lambda: pings.findings("broker 1", PID) == wanted)
        pings.disconnected(child)
        assert pings.findings("broker 1", PID) == []

    play(story)


def test_a_watching_client_answers_pings_with_its_problems(tmp_path: Path) -> None:
    async def story(pings: ChildPings, sent: list[None]) -> None:
        path = tmp_path / SOCKET_NAME
        socket = ControlSocket(path, served, tuple, lambda gateways: None, pings)
        await socket.open()

        async def problems() -> Sequence[str]:
            return ["x" * 1_000] + ["y"] * 20

        async def watch() -> None:
            async for clusters in Control(path).watch(problems=problems):
                assert clusters == ()

        watching = asyncio.create_task(watch())
        await until(lambda: pings.findings("it", PID) != [])
        assert [finding.text[:6] for finding in pings.findings("it", PID)] == ["it: xx"] + ["it: y"] * 9
        assert len(pings.findings("it", PID)[0].text) == len("it: ") + 500
        watching.cancel()
        await until(lambda: pings.findings("it", PID) == [])
        socket.close()

    play(story)
