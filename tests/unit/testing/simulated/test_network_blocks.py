"""Tests one-way and two-way blocks of the simulated network, and the sockets of paused processes."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from builders.simulations.network_scene import Collector, NetworkScene, run
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import CONNECT_TIMEOUT_S, Direction
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.transport import WINDOW_BYTES


@pytest.fixture(params=range(5))
def scene(request: pytest.FixtureRequest) -> Iterator[NetworkScene]:
    loop = SimulatedLoop()
    scene = NetworkScene(loop, request.param)
    yield scene
    loop.end()
    assert loop.failures == []


def test_a_black_hole_drops_bytes_and_connections_until_unblocked(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        scene.network.block("client", "server")
        client.transport.write(b"into the void")
        before = scene.loop.time()
        with pytest.raises(TimeoutError):
            await scene.connect()
        assert scene.loop.time() - before > CONNECT_TIMEOUT_S
        await scene.connect("other")
        assert (client.data, client.events) == (b"", ["made"])
        scene.network.unblock("client", "server")
        await asyncio.sleep(5)
        assert client.data == b"into the void"

    run(scene, body)


@pytest.mark.parametrize("direction", [Direction.OUTGOING, Direction.INCOMING])
def test_a_one_way_block_drops_the_bytes_of_one_direction(scene: NetworkScene, direction: Direction) -> None:
    async def body(scene: NetworkScene) -> None:
        scene.echo = False
        client = await scene.connect()
        await asyncio.sleep(1)
        server = scene.accepted[0]
        scene.network.block("client", "server", direction)
        client.transport.write(b"to the server")
        server.transport.write(b"to the client")
        await asyncio.sleep(10)
        outgoing = direction is Direction.OUTGOING
        assert (server.data, client.data) == ((b"", b"to the client") if outgoing else (b"to the server", b""))
        assert (client.events, server.events) == (["made"], ["made"])
        scene.network.unblock("client", "server", direction)
        await asyncio.sleep(5)
        assert (server.data, client.data) == (b"to the server", b"to the client")

    run(scene, body)


@pytest.mark.parametrize("direction", [Direction.OUTGOING, Direction.INCOMING])
def test_connecting_times_out_when_one_direction_is_blocked(scene: NetworkScene, direction: Direction) -> None:
    async def body(scene: NetworkScene) -> None:
        scene.network.block("client", "server", direction)
        before = scene.loop.time()
        with pytest.raises(TimeoutError):
            await scene.connect()
        assert scene.loop.time() - before > CONNECT_TIMEOUT_S
        assert scene.accepted == []
        await scene.connect("other")
        scene.network.unblock("client", "server", direction)
        await scene.connect()

    run(scene, body)


def test_a_one_way_block_stalls_the_other_direction_after_a_window(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        scene.echo = False
        client = await scene.connect()
        await asyncio.sleep(1)
        server = scene.accepted[0]
        scene.network.block("server", "client", Direction.OUTGOING)
        total = 2 * WINDOW_BYTES + 1_000
        client.transport.write(b"z" * total)
        await asyncio.sleep(60)
        assert len(server.data) == WINDOW_BYTES
        scene.network.unblock("server", "client", Direction.OUTGOING)
        await asyncio.sleep(60)
        assert len(server.data) == total

    run(scene, body)


def test_a_block_between_two_hosts_does_not_affect_others(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        await scene.network.host("second").listen(scene.make, "second.example", 1)
        client, other = await scene.connect(), await scene.connect("other")
        second = await scene.network.host("client").connect(Collector, "second.example", 1)
        assert isinstance(second, Collector)
        await asyncio.sleep(1)
        scene.network.block("client", "server")
        scene.network.block("client", "server", Direction.OUTGOING)
        for end in (client, other, second):
            end.transport.write(b"hello")
        await asyncio.sleep(5)
        assert (client.data, other.data, second.data) == (b"", b"hello", b"hello")
        scene.network.unblock("client", "server")
        await asyncio.sleep(5)
        assert client.data == b"", "the second block is still there"
        scene.network.unblock("client", "server", Direction.OUTGOING)
        await asyncio.sleep(5)
        assert client.data == b"hello"

    run(scene, body)


def test_a_host_that_is_blocked_from_all_others_still_reaches_itself(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        scene.network.block("server")
        client = await scene.connect("server")
        client.transport.write(b"to myself")
        await asyncio.sleep(5)
        assert client.data == b"to myself"

    run(scene, body)


def test_sockets_of_a_paused_process_accept_and_buffer_input(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        owner = SimulatedOwner("paused")
        context = copy_context()
        context.run(OWNER.set, owner)

        async def serve() -> None:
            await scene.network.host("paused").listen(scene.make, "paused.example", 1)

        await scene.loop.create_task(serve(), context=context)
        host = scene.network.host("client")
        before = await host.connect(Collector, "paused.example", 1)
        assert isinstance(before, Collector)
        await asyncio.sleep(1)
        scene.loop.pause(owner)
        during = await host.connect(Collector, "paused.example", 1)
        assert isinstance(during, Collector)
        before.transport.write(b"a" * 10)
        during.transport.write(b"b" * (WINDOW_BYTES + 1))
        during.transport.write_eof()
        await asyncio.sleep(30)
        assert [(end.data, end.events) for end in scene.accepted] == [(b"", ["made"])]
        assert during.transport.get_write_buffer_size() == 1, "the window is full"
        scene.loop.resume(owner)
        await asyncio.sleep(30)
        assert [len(end.data) for end in scene.accepted] == [10, WINDOW_BYTES + 1]
        assert "eof" in scene.accepted[1].events
        assert len(during.data) == WINDOW_BYTES + 1

    run(scene, body)


def test_resume_writing_is_delivered_when_a_paused_process_resumes(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        owner = SimulatedOwner("paused")
        context = copy_context()
        context.run(OWNER.set, owner)
        scene.echo = False
        client = await scene.loop.create_task(scene.connect("writer"), context=context)
        await asyncio.sleep(1)
        server = scene.accepted[0]
        server.transport.pause_reading()
        context.run(client.transport.write, b"y" * (WINDOW_BYTES + 200_000))
        await asyncio.sleep(10)
        scene.loop.pause(owner)
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert len(server.data) == WINDOW_BYTES + 200_000, "what was written is the machine's"
        assert client.events == ["made", "pause"]
        scene.loop.resume(owner)
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]

    run(scene, body)
