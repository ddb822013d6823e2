"""Tests the memory for frames: admission, waiting, and that large frames do not affect small ones."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from builders.partitions import InlineWorkers
from builders.requests import RawPeer, in_simulation, request_frame
from millstream.broker.dispatch.dispatch_table import ApiRow, DispatchTable
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.net.frame_progress import STALL_S
from millstream.broker.net.listener import Listener
from millstream.broker.net.memory_limits import MEDIUM_FRAME_BYTES_MAX, SMALL_FRAME_BYTES_MAX, MemoryLimits
from millstream.model.authorization import ALLOW_ALL
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.model.rights import Right
from millstream.testing.simulated.clock import SimulatedClock
from millstream.testing.simulated.network import SimulatedNetwork
from millstream.wire.framing import SIZE, read_correlation_id

LIMIT_BYTES = 300_000
MEMORY_BYTES = 8_000_000
SIZES = [0, 1_000, SMALL_FRAME_BYTES_MAX - 100, SMALL_FRAME_BYTES_MAX + 100, 1_000_000]
GIANT_BYTES = MEDIUM_FRAME_BYTES_MAX + 1_000_000


class Stage:
    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.memory = MemoryLimits(incoming_bytes_max=MEMORY_BYTES)
        rows = [
            ApiRow(0, "Produce", 3, 13, Right.NOTHING, self.size_of, bytes_max=REQUEST_BYTES_MAX),
            ApiRow(1, "Fetch", 4, 18, Right.NOTHING, self.size_of, bytes_max=LIMIT_BYTES),
        ]
        self.listener = Listener(
            DispatchTable(rows, ALLOW_ALL), SimulatedClock(asyncio.get_running_loop()), self.memory, InlineWorkers()
        )

    def size_of(self, request: BrokerRequest) -> Result:
        return b"%d" % (len(request.frame) - request.body)

    async def peer(self) -> RawPeer:
        return await RawPeer.connect(self.network.host("peer"), "broker", 9092)


def on_stage(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def run(network: SimulatedNetwork) -> None:
        stage = Stage(network)
        await stage.listener.start(network.host("broker"), "broker", 9092)
        await test(stage)
        await stage.listener.stop(1)
        assert stage.memory.incoming_bytes == 0

    in_simulation(run)


def message(size: int, api: str = "Produce", correlation_id: int = 1) -> bytes:
    return request_frame(api, 4, body=[bytes(size)], correlation_id=correlation_id)


async def is_answered(peer: RawPeer, size: int) -> None:
    peer.send(message(size))
    assert bytes((await peer.frame())[4:]) == b"%d" % size


async def begin_giants(stage: Stage, count: int) -> list[RawPeer]:
    """Connect more peers than the memory allows, each of which sends most of a huge frame and then stops."""
    giants = [await stage.peer() for _ in range(count)]
    for giant in giants:
        giant.send(message(GIANT_BYTES)[:-10])
    await asyncio.sleep(STALL_S / 3)
    assert stage.memory.large.waiting
    return giants


@pytest.mark.parametrize("size", SIZES)
def test_incomplete_huge_frames_do_not_delay_usual_requests(size: int) -> None:
    async def test(stage: Stage) -> None:
        good = await stage.peer()
        giants = await begin_giants(stage, 12)
        for _ in range(5):
            await is_answered(good, size)
            await is_answered(await stage.peer(), size)
        assert stage.memory.large.waiting
        assert not any(giant.is_lost for giant in giants), "nobody had to be cut off for it"

    on_stage(test)


def test_pipelined_requests_are_answered_while_huge_frames_wait() -> None:
    async def test(stage: Stage) -> None:
        await begin_giants(stage, 12)
        good = await stage.peer()
        good.send(*[message(100 * number, correlation_id=number) for number in range(200)])
        for number in range(200):
            assert read_correlation_id(await good.frame()) == number

    on_stage(test)


def test_frames_without_memory_are_counted_as_waiting() -> None:
    async def test(stage: Stage) -> None:
        assert stage.memory.waiting_frames == 0
        giants = await begin_giants(stage, 3)
        assert stage.memory.waiting_frames == 2, "the memory has room for one of them"
        for giant in giants:
            giant.close()
        await asyncio.sleep(STALL_S / 3)
        assert stage.memory.waiting_frames == 0

    on_stage(test)


def test_slow_huge_frames_are_disconnected_for_a_fast_one() -> None:
    async def drip(peer: RawPeer) -> None:
        while not peer.is_lost:
            peer.send(b"\0")
            await asyncio.sleep(0.5)

    async def test(stage: Stage) -> None:
        giants = [await stage.peer() for _ in range(4)]
        for giant in giants:
            giant.send(message(GIANT_BYTES)[:1_000_000])
        await asyncio.sleep(1)
        drips = [asyncio.ensure_future(drip(giant)) for giant in giants]
        good = await stage.peer()
        await is_answered(good, GIANT_BYTES)
        assert not good.is_lost
        assert any(giant.is_lost for giant in giants)
        for giant in giants:
            giant.close()
        await asyncio.gather(*drips)

    on_stage(test)


def test_all_stalled_frames_are_disconnected_when_memory_is_needed() -> None:
    async def test(stage: Stage) -> None:
        hogs = [await stage.peer() for _ in range(20)]
        for hog in hogs:
            hog.send(message(140_000)[:100_000])
        await asyncio.sleep(10 * STALL_S / 2)
        assert not any(hog.is_lost for hog in hogs), "nobody needs what they hold"
        good = [await stage.peer() for _ in range(3)]
        began = asyncio.get_running_loop().time()
        for peer in good:
            peer.send(message(900_000))
        for peer in good:
            assert bytes((await peer.frame())[4:]) == b"900000"
        assert asyncio.get_running_loop().time() - began < 3 * STALL_S
        assert all(hog.is_lost for hog in hogs)

    on_stage(test)


@pytest.mark.parametrize("pieces", [(6,), (4, 6), (3, 5, 6), (4, 5, 6)])
def test_a_request_above_its_apis_limit_is_refused_once_its_key_arrives(pieces: tuple[int, ...]) -> None:
    async def test(stage: Stage) -> None:
        start = SIZE.pack(REQUEST_BYTES_MAX) + b"\0\1"
        peer = await stage.peer()
        began = asyncio.get_running_loop().time()
        done = 0
        for end in pieces:
            peer.send(start[done:end])
            await asyncio.sleep(0.1)
            done = end
        await peer.lost()
        assert asyncio.get_running_loop().time() - began < 1

    on_stage(test)


def test_a_size_in_pieces_after_a_large_frame_is_read_correctly() -> None:
    async def test(stage: Stage) -> None:
        peer, other = await stage.peer(), await stage.peer()
        await is_answered(peer, 200_000)
        for byte in message(70_000)[:6]:
            peer.send(bytes([byte]))
            await asyncio.sleep(0.1)
            await is_answered(other, 50)
        peer.send(message(70_000)[6:])
        assert bytes((await peer.frame())[4:]) == b"70000"

    on_stage(test)


def test_a_frame_larger_than_the_pool_is_admitted_alone() -> None:
    async def test(stage: Stage) -> None:
        peers = [await stage.peer() for _ in range(3)]
        for peer in peers:
            peer.send(message(MEMORY_BYTES))
        for peer in peers:
            assert bytes((await peer.frame())[4:]) == b"%d" % MEMORY_BYTES

    on_stage(test)
