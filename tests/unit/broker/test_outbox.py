"""Answers reach the peer whole and in their order, whichever way the socket takes them."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
import uvloop

from penstock.broker.memory import Memory
from penstock.broker.outbox import HIGH_WATER_BYTES, Outbox
from penstock.wire.framing import Buffer, frame_response

TIMEOUT_S = 30


def numbered(size: int) -> bytes:
    """Bytes of which none can change places with another unnoticed."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


class Sending(asyncio.Protocol):
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outbox.open(cast("asyncio.Transport", transport))  # uvloop's are not of asyncio's class

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._outbox.close()
        self.over.set_result(exc)


def framed(answers: Sequence[Sequence[Buffer]]) -> bytes:
    frames = []
    for number, answer in enumerate(answers):
        body = b"".join(answer)
        frames.append(frame_response(number, False, len(body)) + body)
    return b"".join(frames)


def send(outbox: Outbox, answers: Sequence[Sequence[Buffer]]) -> None:
    for number, answer in enumerate(answers):
        outbox.put(number, False, list(answer))
        outbox.send()


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([[numbered(HIGH_WATER_BYTES)]], id="one that is just not large"),
        pytest.param([[numbered(HIGH_WATER_BYTES + 1)]], id="one that is just large"),
        pytest.param([[b"head", bytearray(numbered(950_000))]], id="a head and records"),
        pytest.param([[b"head", numbered(5_000_000), b"tail"]] * 2, id="more than the socket takes at once"),
        pytest.param([[b"small"], [numbered(200_000)], [b"small"], [numbered(300_000)]], id="small ones between"),
        pytest.param([[numbered(100)] * 3_000], id="more pieces than one call takes"),
    ],
)
def test_answers_arrive_whole_and_in_order(runner: asyncio.Runner, answers: list[list[Buffer]]) -> None:
    memory = Memory()

    async def scene() -> None:
        ours, theirs = socket.socketpair()
        outbox = Outbox(memory)
        loop = asyncio.get_running_loop()
        transport, sending = await loop.create_unix_connection(lambda: Sending(outbox), sock=ours)
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        send(outbox, answers)
        expected = framed(answers)
        assert await reader.readexactly(len(expected)) == expected
        transport.close()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await sending.over

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))
    assert memory.outgoing_bytes == 0


def test_a_large_answer_to_a_peer_that_has_gone_ends_the_connection(runner: asyncio.Runner) -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        outbox = Outbox(Memory())
        loop = asyncio.get_running_loop()
        _, sending = await loop.create_unix_connection(lambda: Sending(outbox), sock=ours)
        theirs.close()
        send(outbox, [[numbered(950_000)]])
        await sending.over
        send(outbox, [[numbered(950_000)]])

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))
