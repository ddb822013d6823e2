"""Tests that responses arrive completely and in order, by every path through socket and transport."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
import uvloop

from builders.partitions import InlineWorkers
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import COLD_BYTES, HIGH_WATER_BYTES, Outbox
from millstream.seams.local_disk import LocalDisk, LocalFile
from millstream.seams.local_file_part import LocalPart
from millstream.wire.framing import Buffer, Piece, frame_response

TIMEOUT_S = 30


def numbered(size: int) -> bytes:
    """Return bytes in which every swapped pair is detected."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


class Sending(asyncio.Protocol):
    def __init__(self, memory: MemoryLimits) -> None:
        self.outbox = self._outbox = Outbox(memory, InlineWorkers(), self)
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outbox.open(
            cast("asyncio.Transport", transport)
        )  # uvloop's transports do not inherit from asyncio.Transport

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._outbox.close()
        self.over.set_result(exc)


class ColdPart(LocalPart):
    """A file part that is cached at the first check and never again."""

    __slots__ = ()

    def is_cached(self) -> bool:
        return False

    def behind(self, size: int) -> "ColdPart":
        return ColdPart(self._file, position=self._position + size, size=self._size - size)


class LostPart(ColdPart):
    """A file part that leaves the page cache before it is sent. Sending it would block on the disk."""

    __slots__ = ()

    def send(self, head: bytes, socket_fd: int) -> int:
        raise AssertionError("nobody asked whether it is in memory")


class TightPart(LocalPart):
    """A file part whose last bytes the socket does not take."""

    __slots__ = ()

    def send(self, head: bytes, socket_fd: int) -> int:
        return LocalPart(self._file, position=self._position, size=self._size - 100).send(head, socket_fd)


class InFile(bytes):
    """A piece of a response that is stored in a file."""

    part: type[LocalPart] = LocalPart


class InColdFile(InFile):
    part = ColdPart


class InLostFile(InFile):
    part = LostPart


class InTightFile(InFile):
    part = TightPart


def stored(answers: Sequence[Sequence[Buffer]], path: Path) -> tuple[LocalFile, list[list[Piece]]]:
    """Return the responses with their file pieces stored in files."""
    file, size, found = LocalDisk().open(str(path), create=True), 0, []
    for answer in answers:
        pieces: list[Piece] = []
        for piece in answer:
            if isinstance(piece, InFile):
                file.write(piece, size)
                pieces.append(piece.part(file, position=size, size=len(piece)))
                size += len(piece)
            else:
                pieces.append(piece)
        found.append(pieces)
    return file, found


def framed(answers: Sequence[Sequence[Buffer]]) -> bytes:
    frames = []
    for number, answer in enumerate(answers):
        body = b"".join(answer)
        frames.append(frame_response(number, False, len(body)) + body)
    return b"".join(frames)


def send(outbox: Outbox, answers: Sequence[Sequence[Piece]]) -> None:
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
        pytest.param([[b"head", InFile(numbered(950_000)), b"tail"]], id="records in a file"),
        pytest.param([[b"head", InFile(numbered(5_000_000)), b"tail"]] * 2, id="more of a file than the socket takes"),
        pytest.param([[b"a", InFile(numbered(70_000))] * 9] * 9, id="many parts"),
        pytest.param([[InFile(numbered(100_000))], [b"small"], [numbered(300_000)]] * 5, id="read and unread ones"),
        pytest.param([[b"head", InColdFile(numbered(5 * COLD_BYTES)), b"tail"]] * 2, id="a file that leaves memory"),
        pytest.param(
            [[b"a", InFile(numbered(70_000)), b"b", InLostFile(numbered(70_000))]], id="a second file that left"
        ),
        pytest.param([[b"head", InTightFile(numbered(70_000))]], id="all but the end of a file"),
    ],
)
def test_responses_arrive_completely_and_in_order(
    runner: asyncio.Runner, answers: list[list[Buffer]], tmp_path: Path
) -> None:
    memory = MemoryLimits()

    async def scene() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, sending = await loop.create_unix_connection(lambda: Sending(memory), sock=ours)
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        send(sending.outbox, stored(answers, tmp_path / "file")[1])
        expected = framed(answers)
        assert await reader.readexactly(len(expected)) == expected
        assert not sending.outbox.is_sending
        assert transport.get_write_buffer_limits()[1] == HIGH_WATER_BYTES
        transport.close()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await sending.over

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))
    assert memory.outgoing_bytes == 0


def test_unsent_file_parts_of_a_slow_peer_take_no_memory(runner: asyncio.Runner, tmp_path: Path) -> None:
    memory = MemoryLimits()

    async def scene() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, sending = await loop.create_unix_connection(lambda: Sending(memory), sock=ours)
        send(sending.outbox, stored([[b"head", InFile(numbered(5_000_000))]] * 4, tmp_path / "file")[1])
        await asyncio.sleep(0)
        assert sending.outbox.is_paused
        assert sending.outbox.is_sending
        assert 0 < memory.outgoing_bytes < HIGH_WATER_BYTES
        transport.abort()
        await sending.over
        theirs.close()

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))
    assert memory.outgoing_bytes == 0


@pytest.mark.parametrize("piece", [InFile, InColdFile])
def test_a_file_truncated_while_it_is_sent_closes_the_connection(
    runner: asyncio.Runner, piece: type[InFile], tmp_path: Path
) -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, sending = await loop.create_unix_connection(lambda: Sending(MemoryLimits()), sock=ours)
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        file, answers = stored([[b"head", piece(numbered(5_000_000))]], tmp_path / "file")
        send(sending.outbox, answers)
        file.truncate(100)
        assert len(await reader.read()) < 5_000_000
        await sending.over
        writer.close()
        await writer.wait_closed()

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))


@pytest.mark.parametrize("piece", [bytes, InFile])
def test_a_large_response_to_a_disconnected_peer_closes_the_connection(
    runner: asyncio.Runner, piece: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, sending = await loop.create_unix_connection(lambda: Sending(MemoryLimits()), sock=ours)
        theirs.close()
        answers = stored([[piece(numbered(950_000))]], tmp_path / "file")[1]
        send(sending.outbox, answers)
        await sending.over
        send(sending.outbox, answers)

    runner.run(asyncio.wait_for(scene(), TIMEOUT_S))
