"""Tests that the end of each connection is counted once, with its reason."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from builders.requests import framed, in_simulation
from millstream.broker.dispatch.request import CloseConnectionError, Work
from millstream.broker.net.close_reasons import CloseReason
from millstream.broker.net.connection import FRAME_SILENCE_S
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import READER_SILENCE_S
from millstream.model.errors import ErrorCode
from millstream.process.logs import fields_of
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.framing import SIZE
from unit.broker.net.test_connection import HOSTILE, Scene, echo, failing, scene, wait_for_it

TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)


def reasons(stage: Scene) -> dict[CloseReason, int]:
    return {reason: count for reason, count in stage.listener.counters.closed.items() if count}


async def hang_up(stage: Scene) -> None:
    peer = await stage.peer()
    peer.send(echo(1))
    await peer.frame()
    peer.close()
    await asyncio.sleep(1)


async def hang_up_with_a_pending_request(stage: Scene) -> None:
    peer = await stage.peer()
    peer.send(wait_for_it(1))
    await asyncio.sleep(1)
    peer.close()
    await asyncio.sleep(1)


def sends(data: bytes, wait_s: float = 1) -> Callable[[Scene], Coroutine[Any, Any, None]]:
    async def send(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(data)
        await asyncio.sleep(wait_s)

    return send


def fails(error: Exception) -> Callable[[Scene], Coroutine[Any, Any, None]]:
    async def send(stage: Scene) -> None:
        stage.answer = failing(error)
        await sends(echo(1))(stage)

    return send


async def fail_in_work(stage: Scene) -> None:
    async def fail() -> bytes:
        raise ZeroDivisionError

    stage.answer = lambda request: Work(fail())
    await sends(echo(1))(stage)


async def read_nothing(stage: Scene) -> None:
    stage.answer = lambda request: [bytes(4_000_000)]
    peer = await stage.peer()
    peer.transport.pause_reading()
    peer.send(echo(1))
    await asyncio.sleep(3 * READER_SILENCE_S)


CASES: dict[str, tuple[Callable[[Scene], Coroutine[Any, Any, None]], CloseReason]] = {
    "the client hangs up": (hang_up, CloseReason.CLIENT),
    "the client hangs up while a request waits": (hang_up_with_a_pending_request, CloseReason.CLIENT),
    "half a frame": (sends(SIZE.pack(1000) + b"half", 2 * FRAME_SILENCE_S), CloseReason.IDLE),
    "nothing is read": (read_nothing, CloseReason.SLOW),
    "a bad size": (sends(HOSTILE["negative size"]), CloseReason.MALFORMED),
    "a bad header": (sends(framed(b"")), CloseReason.MALFORMED),
    "a TLS handshake": (sends(TLS_HELLO), CloseReason.TLS),
    "an unknown key": (sends(HOSTILE["unknown key"]), CloseReason.UNSUPPORTED),
    "a request without a response": (fails(CloseConnectionError(ErrorCode.INVALID_REQUEST, "no")), CloseReason.FAILED),
    "an unexpected error": (fails(ZeroDivisionError()), CloseReason.ERROR),
    "an unexpected error in a task": (fail_in_work, CloseReason.ERROR),
}


@pytest.mark.parametrize("case", CASES)
def test_each_close_is_counted_once_with_its_reason(case: str) -> None:
    act, reason = CASES[case]

    async def test(stage: Scene) -> None:
        await act(stage)
        assert stage.listener.connection_count == 0
        assert reasons(stage) == {reason: 1}

    scene(test)


def test_a_client_with_an_unserved_request_is_logged_with_its_client_id(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        await sends(framed(b"\x00\x00\x00\x63\x00\x00\x00\x01\x00\x03app"))(stage)
        assert reasons(stage) == {CloseReason.UNSUPPORTED: 1}

    scene(test)
    (line,) = [fields_of(record) for record in caplog.records]
    assert line["client_id"] == "app"


def test_a_frame_that_holds_memory_too_long_is_counted_as_memory() -> None:
    async def test(stage: Scene) -> None:
        hogs = [await stage.peer("hog") for _ in range(3)]
        for hog in hogs:
            hog.send(echo(1, bytes(450_000))[:200_000])
        await asyncio.sleep(1)
        good = await stage.peer("good")
        good.send(echo(2, bytes(300_000)))
        await asyncio.wait_for(good.frame(), 20)
        assert reasons(stage).keys() == {CloseReason.MEMORY}

    scene(test, MemoryLimits(incoming_bytes_max=1_000_000))


@pytest.mark.parametrize("is_pending", [False, True])
def test_connections_of_a_stopping_broker_are_counted_as_drained(is_pending: bool) -> None:
    found: dict[CloseReason, int] = {}

    async def run(network: SimulatedNetwork) -> None:
        stage = await Scene(network).start()
        peers = [await stage.peer() for _ in range(3)]
        if is_pending:
            peers[0].send(wait_for_it(1))
        await asyncio.sleep(1)
        await stage.listener.stop(1)
        await asyncio.sleep(1)
        found.update(reasons(stage))

    in_simulation(run)
    assert found == {CloseReason.DRAIN: 3}
