"""Tests connections in simulated time: order, pipelining, backpressure and misbehaving peers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from builders.partitions import InlineWorkers
from builders.requests import RawPeer, framed, in_simulation, request_frame
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, DeferredResponse, Handler, Result, Work
from millstream.broker.dispatch.response_queue import PENDING_MAX
from millstream.broker.net.connection import FRAME_SILENCE_S
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import HIGH_WATER_BYTES, READER_SILENCE_S
from millstream.model.authorization import ALLOW_ALL
from millstream.model.rights import Right
from millstream.seams.local_disk import LocalDisk
from millstream.seams.local_file_part import LocalPart
from millstream.seams.network import Listening
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.framing import SIZE, read_correlation_id
from millstream.wire.malformed import MalformedMessageError

LIMIT_BYTES = 300_000


class Scene:
    """A listener with three fictitious APIs, which use the keys of real ones."""

    def __init__(self, network: SimulatedNetwork, memory: MemoryLimits | None = None) -> None:
        self.network = network
        self.bodies: list[bytes] = []
        self.laters: list[DeferredResponse] = []
        self.answer: Callable[[BrokerRequest], Result] = lambda request: bytes(request.frame[request.body :])
        rows = [
            ApiRow(0, "Produce", 3, 13, Right.NOTHING, self.handle, bytes_max=100 * 1024 * 1024),
            ApiRow(1, "Fetch", 4, 18, Right.NOTHING, self.later, bytes_max=LIMIT_BYTES),
            ApiRow(18, "ApiVersions", 0, 4, Right.NOTHING, self.handle, refusal=b"refused"),
        ]
        self.listener = Listener(
            DispatchTable(rows, ALLOW_ALL),
            SimulatedClock(asyncio.get_running_loop()),
            memory or MemoryLimits(),
            InlineWorkers(),
        )
        self.listening: Listening | None = None

    def handle(self, request: BrokerRequest) -> Result:
        self.bodies.append(bytes(request.frame[request.body :]))
        return self.answer(request)

    def later(self, request: BrokerRequest) -> Result:
        later: DeferredResponse = DeferredResponse(lambda: later.finish(b"hurried"))
        self.laters.append(later)
        return later

    async def start(self) -> "Scene":
        self.listening = await self.listener.start(self.network.host("broker"), "broker", 9092)
        return self

    async def peer(self, host: str = "peer") -> RawPeer:
        peer = await RawPeer.connect(self.network.host(host), "broker", 9092)
        await asyncio.sleep(0.1)
        return peer


def echo(correlation_id: int, body: bytes = b"") -> bytes:
    return request_frame("Produce", 3, correlation_id=correlation_id, body=[body])


def wait_for_it(correlation_id: int) -> bytes:
    return request_frame("Fetch", 4, correlation_id=correlation_id, body=[b""])


def scene(test: Callable[[Scene], Coroutine[Any, Any, None]], memory: MemoryLimits | None = None) -> None:
    async def run(network: SimulatedNetwork) -> None:
        stage = await Scene(network, memory).start()
        await test(stage)
        await stage.listener.stop(1)

    in_simulation(run)


async def correlation_ids(peer: RawPeer, count: int) -> list[int]:
    return [read_correlation_id(await peer.frame()) for _ in range(count)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 40_000, 70_000, 200_000, 3_000_000])
def test_frames_of_every_size_arrive_completely_and_in_order(size: int) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        bodies = [bytes([number]) * size for number in range(6)]
        for number, body in enumerate(bodies):
            peer.send(echo(number, body))
        for number, body in enumerate(bodies):
            frame = await peer.frame()
            assert read_correlation_id(frame) == number
            assert frame[4:] == body
        assert stage.bodies == bodies
        assert stage.listener.memory.incoming_bytes == 0

    scene(test)


def test_a_frame_may_arrive_byte_by_byte() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        for byte in echo(7, b"slow"):
            peer.send(bytes([byte]))
            await asyncio.sleep(0.01)
        assert await correlation_ids(peer, 1) == [7]

    scene(test)


def test_responses_keep_the_order_of_requests() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(wait_for_it(1), echo(2), wait_for_it(3), echo(4))
        await asyncio.sleep(1)
        assert len(stage.bodies) == 2, "later requests are dispatched while earlier ones wait"
        assert not peer.received
        stage.laters[1].finish(b"second")
        await asyncio.sleep(1)
        assert not peer.received
        stage.laters[0].finish(b"first")
        assert await correlation_ids(peer, 4) == [1, 2, 3, 4]
        assert stage.listener.memory.incoming_bytes == 0
        assert stage.listener.memory.outgoing_bytes == 0

    scene(test)


def test_awaited_work_keeps_the_order_of_responses() -> None:
    async def slowly() -> bytes:
        await asyncio.sleep(5)
        return b"slow"

    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        stage.answer = lambda request: Work(slowly()) if request.correlation_id == 1 else b"quick"
        peer.send(echo(1), echo(2))
        first, second = await peer.frame(), await peer.frame()
        assert (bytes(first[4:]), bytes(second[4:])) == (b"slow", b"quick")

    scene(test)


def test_a_request_without_a_response_does_not_delay_later_ones() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        stage.answer = lambda request: None if request.correlation_id == 2 else b"x"
        peer.send(echo(1), echo(2), echo(3))
        assert await correlation_ids(peer, 2) == [1, 3]

    scene(test)


def test_the_number_of_pending_requests_is_limited() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        count = 3 * PENDING_MAX
        peer.send(*[wait_for_it(number) for number in range(count)])
        await asyncio.sleep(1)
        assert len(stage.laters) == PENDING_MAX
        for number in range(count):
            await asyncio.sleep(0.01)
            stage.laters[number].finish(b"done")
        assert await correlation_ids(peer, count) == list(range(count))

    scene(test)


def test_an_unknown_version_is_answered_if_the_protocol_allows_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(framed(b"\x00\x12\x00\x63\x00\x00\x00\x09\xff\xff"))
        frame = await peer.frame()
        assert (read_correlation_id(frame), bytes(frame[4:])) == (9, b"refused")
        peer.send(echo(1))
        assert await correlation_ids(peer, 1) == [1]

    scene(test)
    assert warnings(caplog) == []


def test_a_refused_request_releases_its_memory_once_after_a_slow_response() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(wait_for_it(1), framed(b"\x00\x12\x00\x63\x00\x00\x00\x02\xff\xff"))
        await asyncio.sleep(1)
        stage.laters[0].finish(b"done")
        assert await correlation_ids(peer, 2) == [1, 2]
        assert stage.listener.memory.incoming_bytes == 0
        # Larger than the pool, so it is admitted only if the pool counts no other frame.
        request = echo(3, bytes(500))
        peer.send(request[:100])
        await asyncio.sleep(1)
        peer.send(request[100:])
        assert await asyncio.wait_for(correlation_ids(peer, 1), 10) == [3]

    scene(test, MemoryLimits(incoming_bytes_max=800))


def failing(error: Exception) -> Handler:
    def fail(request: BrokerRequest) -> Result:
        raise error

    return fail


HOSTILE = {
    "negative size": SIZE.pack(-1),
    "oversize": SIZE.pack(2**31 - 1),
    "empty frame": framed(b""),
    "too short for a request": framed(b"\0\0\0\3\0"),
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "unknown key": framed(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"),
    "unknown version": framed(b"\x00\x00\x00\x63\x00\x00\x00\x01\xff\xff"),
    "client id beyond the frame": framed(b"\x00\x00\x00\x03\x00\x00\x00\x01\x7f\xff"),
    "negative client id": framed(b"\x00\x00\x00\x03\x00\x00\x00\x01\x80\x00"),
    "tags that do not end": framed(b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff"),
    "more than its api allows": request_frame("Fetch", 4, body=[bytes(LIMIT_BYTES)]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_garbage_closes_its_connection_with_one_log_line(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        good = await stage.peer("good")
        for _ in range(20):
            bad = await stage.peer("bad")
            bad.send(HOSTILE[kind])
            await asyncio.wait_for(bad.lost(), 5)
            assert not bad.received
        good.send(echo(5))
        assert await correlation_ids(good, 1) == [5]
        assert stage.listener.memory.incoming_bytes == 0
        assert stage.listener.connection_count == 1

    scene(test)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("kind", HOSTILE)
def test_requests_after_garbage_are_not_executed(kind: str) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(echo(1, b"before"), HOSTILE[kind], echo(2, b"behind") * 3)
        await asyncio.wait_for(peer.lost(), 5)
        assert b"behind" not in stage.bodies
        assert stage.listener.memory.incoming_bytes == 0

    scene(test)


def test_a_malformed_body_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        stage.answer = failing(MalformedMessageError("nonsense"))
        peer.send(echo(1))
        await asyncio.wait_for(peer.lost(), 5)
        assert stage.listener.memory.incoming_bytes == 0

    scene(test)
    assert warnings(caplog) == ["connection cut off: bad request"]


@pytest.mark.parametrize("in_work", [False, True])
def test_a_failed_handler_closes_only_its_connection(in_work: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> bytes:
        raise ZeroDivisionError

    async def test(stage: Scene) -> None:
        peer, other = await stage.peer(), await stage.peer()
        stage.answer = (lambda request: Work(fail())) if in_work else failing(ZeroDivisionError())
        peer.send(echo(1))
        await asyncio.wait_for(peer.lost(), 5)
        assert stage.listener.memory.incoming_bytes == 0
        stage.answer = lambda request: b"fine"
        other.send(echo(2))
        assert await correlation_ids(other, 1) == [2]

    scene(test)
    assert warnings(caplog) == ["request failed unexpectedly, connection closed"]


@pytest.mark.parametrize("start", [b"\0", SIZE.pack(1000), SIZE.pack(1000) + b"half", echo(1, bytes(50_000))[:40_000]])
def test_a_peer_that_stops_within_a_frame_is_disconnected(start: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(start)
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(peer.lost(), 2 * FRAME_SILENCE_S)
        assert asyncio.get_running_loop().time() - began > FRAME_SILENCE_S
        assert stage.listener.memory.incoming_bytes == 0

    scene(test)
    assert warnings(caplog) == ["connection cut off: half a frame"]


def test_slow_senders_and_idle_peers_stay_connected(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        slow, idle = await stage.peer(), await stage.peer()
        for byte in echo(1, b"patience"):
            slow.send(bytes([byte]))
            await asyncio.sleep(FRAME_SILENCE_S * 0.8)
        assert await correlation_ids(slow, 1) == [1]
        idle.send(echo(2))
        assert await correlation_ids(idle, 1) == [2]

    scene(test)
    assert warnings(caplog) == []


def test_a_reader_that_takes_no_data_is_paused_and_then_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        peer, other = await stage.peer(), await stage.peer()
        stage.answer = lambda request: [bytes(100_000)]
        peer.transport.pause_reading()
        peer.send(*[echo(number) for number in range(1000)])
        await asyncio.sleep(10)
        served = len(stage.bodies)
        assert served < 10, "nobody reads the answers, so no more are made"
        assert stage.listener.memory.outgoing_bytes >= HIGH_WATER_BYTES
        other.send(echo(1))
        assert await correlation_ids(other, 1) == [1]
        await asyncio.sleep(2 * READER_SILENCE_S)
        assert len(stage.bodies) == served + 1
        assert stage.listener.connection_count == 1
        assert stage.listener.memory.outgoing_bytes == 0
        assert stage.listener.memory.incoming_bytes == 0

    scene(test)
    assert warnings(caplog) == ["connection cut off: slow reader"]


def test_a_slow_reader_stays_connected(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        stage.answer = lambda request: [bytes(4_000_000)]
        peer.transport.pause_reading()
        peer.send(echo(1))
        for _ in range(6):
            await asyncio.sleep(READER_SILENCE_S * 0.8)
            peer.transport.resume_reading()
            await asyncio.sleep(0.002)
            peer.transport.pause_reading()
        peer.transport.resume_reading()
        assert await correlation_ids(peer, 1) == [1]
        assert stage.listener.memory.outgoing_bytes == 0

    scene(test)
    assert warnings(caplog) == []


def test_announced_large_frames_allocate_no_memory() -> None:
    async def test(stage: Scene) -> None:
        peers = [await stage.peer() for _ in range(50)]
        for peer in peers:
            peer.send(SIZE.pack(100 * 1024 * 1024))
        await asyncio.sleep(1)
        assert stage.listener.memory.incoming_bytes <= 50 * 16 * 1024

    scene(test)


def test_memory_for_frames_is_bounded_and_waiting_frames_are_served(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryLimits(incoming_bytes_max=8_000_000)
    most = 0

    async def test(stage: Scene) -> None:
        nonlocal most

        def watch(request: BrokerRequest) -> Result:
            nonlocal most
            most = max(most, memory.incoming_bytes)
            return b"done"

        stage.answer = watch
        peers = [await stage.peer() for _ in range(30)]
        for peer in peers:
            peer.send(echo(1, bytes(1_000_000)))
        for peer in peers:
            assert await correlation_ids(peer, 1) == [1]
        assert memory.incoming_bytes == 0

    scene(test, memory)
    assert 2_000_000 < most <= 4_000_000
    assert warnings(caplog) == []


def test_incomplete_frames_that_block_the_memory_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryLimits(incoming_bytes_max=1_000_000)

    async def test(stage: Scene) -> None:
        hogs = [await stage.peer("hog") for _ in range(3)]
        for hog in hogs:
            hog.send(echo(1, bytes(450_000))[:200_000])
        await asyncio.sleep(1)
        good = await stage.peer("good")
        good.send(echo(2, bytes(300_000)))
        assert await asyncio.wait_for(correlation_ids(good, 1), 20) == [2]
        assert any(hog.is_lost for hog in hogs)

    scene(test, memory)
    assert warnings(caplog)[0] == "connection cut off: memory"


def test_a_disconnected_peer_releases_all_memory() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        peer.send(wait_for_it(1), echo(2, bytes(1000)), echo(3, bytes(100_000))[:50_000])
        await asyncio.sleep(1)
        assert stage.listener.memory.incoming_bytes > 0
        peer.transport.abort()
        await asyncio.sleep(1)
        assert stage.laters[0].answer == b"hurried", "nobody waits for it any longer"
        assert stage.listener.memory.incoming_bytes == 0
        assert stage.listener.memory.outgoing_bytes == 0
        assert stage.listener.connection_count == 0

    scene(test)


def test_stopping_answers_pending_requests_and_accepts_no_more() -> None:
    async def test(stage: Scene) -> None:
        peer, idle = await stage.peer(), await stage.peer()
        peer.send(wait_for_it(1), echo(2))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await stage.listener.stop(10)
        assert asyncio.get_running_loop().time() - began < 5
        assert await correlation_ids(peer, 2) == [1, 2]
        await peer.lost()
        await idle.lost()
        with pytest.raises(ConnectionRefusedError):
            await stage.peer()

    scene(test)


def test_stopping_does_not_wait_longer_than_its_grace() -> None:
    async def test(stage: Scene) -> None:
        peer = await stage.peer()
        stage.answer = lambda request: DeferredResponse()
        peer.send(echo(1))
        await asyncio.sleep(1)
        await stage.listener.stop(3)
        await peer.lost()
        assert stage.listener.connection_count == 0

    scene(test)


def test_a_delayed_file_response_takes_no_memory(tmp_path: Path) -> None:
    file = LocalDisk().open(str(tmp_path / "file"), create=True)
    file.write(bytes(100_000), 0)

    async def test(stage: Scene) -> None:
        stage.answer = lambda request: [b"head", LocalPart(file, position=0, size=100_000)]
        peer = await stage.peer()
        peer.send(wait_for_it(1), echo(2))
        await asyncio.sleep(0.1)
        assert stage.listener.memory.outgoing_bytes == len(b"head")
        stage.laters[0].finish(b"now")
        assert read_correlation_id(await peer.frame()) == 1
        answer = await peer.frame()
        assert read_correlation_id(answer) == 2
        assert bytes(answer[4:]) == b"head" + bytes(100_000)
        assert stage.listener.memory.outgoing_bytes == 0

    scene(test)
