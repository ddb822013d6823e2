"""Checks that the real clock, entropy, workers and sockets keep the guarantees of their interfaces."""

import asyncio
import threading

import pytest

from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy, random_uuid
from millstream.seams.network import TcpNetwork
from millstream.seams.workers import ThreadWorkers


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic_s() for _ in range(1000)]
    assert times == sorted(times)
    assert clock.wall_ms() > 1_600_000_000_000


def test_random_ids_are_version_four_and_differ() -> None:
    entropy = SystemEntropy()
    ids = {random_uuid(entropy) for _ in range(100)}
    assert len(ids) == 100
    assert all(one.version == 4 for one in ids)


def test_work_runs_in_another_thread_and_returns_its_result_or_error() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def scenario() -> None:
        workers = ThreadWorkers(1, "test")
        try:
            assert await workers.run(threading.get_ident) != threading.get_ident()
            with pytest.raises(ValueError, match="no"):
                await workers.run(fail)
        finally:
            workers.close()

    asyncio.run(scenario())


def test_workers_run_concurrently_and_finish_their_work_before_closing() -> None:
    meet = threading.Barrier(3)
    done: list[int] = []

    async def scenario() -> None:
        workers = ThreadWorkers(3, "test")
        await asyncio.gather(*(workers.run(lambda: meet.wait(10)) for _ in range(3)))
        gate = threading.Event()
        waits = [workers.run(lambda: gate.wait(10)) for _ in range(3)]
        last = workers.run(lambda: done.append(1))
        called_off = workers.run(lambda: done.append(2))
        called_off.cancel()
        waits[0].cancel()
        gate.set()
        workers.close()
        assert done == [1], "what was called off in time is not begun"
        await asyncio.gather(*waits[1:], last)
        with pytest.raises(RuntimeError, match="closed"):
            workers.run(lambda: None)

    asyncio.run(scenario())


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


class _Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(b"hello")

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)


def test_port_zero_is_assigned_and_both_sides_communicate() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listening = await network.listen(_Echo, "127.0.0.1", 0)
        caller = await network.connect(_Caller, listening.host, listening.port)
        assert isinstance(caller, _Caller)
        assert await asyncio.wait_for(caller.answer, 30) == b"HELLO"
        caller.transport.close()
        listening.close()

    asyncio.run(scenario())


def test_connecting_to_a_closed_port_raises_os_error() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listening = await network.listen(_Echo, "127.0.0.1", 0)
        port = listening.port
        listening.close()
        await asyncio.sleep(0)
        with pytest.raises(OSError, match=r".+"):
            await network.connect(_Caller, "127.0.0.1", port)

    asyncio.run(scenario())
