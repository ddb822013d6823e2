"""The simulated network carries bytes as TCP does, and breaks as it does."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from random import Random
from typing import Any

import pytest

from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.network import CONNECT_TIMEOUT_S, SimulatedNetwork
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.transport import WINDOW_BYTES, Conditions, SimulatedTransport

Body = Callable[["Scene"], Coroutine[Any, Any, None]]


class Collector(asyncio.Protocol):
    """Remembers everything it is told; with `echo` it sends bytes back."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.data = b""
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.lost: asyncio.Event = asyncio.Event()
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(len(data))
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc
        self.lost.set()


class BufferedCollector(asyncio.BufferedProtocol):
    """Receives into a small buffer of its own."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]


class Scene:
    """A server on host `server` and the network around it."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, Random(seed), conditions=Conditions(pieces_chance=0.5))
        self.accepted: list[Collector] = []
        self.echo = True

    def make(self) -> Collector:
        protocol = Collector(self.echo)
        self.accepted.append(protocol)
        return protocol

    async def connect(self, host: str = "client") -> Collector:
        protocol = await self.network.host(host).connect(Collector, "server.example", 9092)
        assert isinstance(protocol, Collector)
        return protocol

    async def run(self, body: Body) -> None:
        await self.network.host("server").listen(self.make, "server.example", 9092)
        await body(self)


@pytest.fixture(params=range(5))
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    loop = SimulatedLoop()
    scene = Scene(loop, request.param)
    yield scene
    loop.end()
    assert loop.failures == []


def run(scene: Scene, body: Body) -> None:
    scene.loop.run_until_complete(scene.run(body))


def test_bytes_arrive_whole_and_in_order(scene: Scene) -> None:
    sent = [bytes([number]) * (1 + number * 37) for number in range(100)]

    async def body(scene: Scene) -> None:
        client = await scene.connect()
        for piece in sent[:50]:
            client.transport.write(piece)
        client.transport.writelines(sent[50:])
        await asyncio.sleep(60)
        assert client.data == b"".join(sent)

    run(scene, body)


def test_a_buffered_protocol_receives_into_its_own_buffer(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        receiver = BufferedCollector()
        await scene.network.host("server").listen(lambda: receiver, "buffered.example", 0)
        protocol = await scene.network.host("client").connect(Collector, "buffered.example", 40_000)
        assert isinstance(protocol, Collector)
        protocol.transport.write(bytes(range(256)))
        await asyncio.sleep(10)
        assert receiver.data == bytes(range(256))

    run(scene, body)


def test_a_buffer_changed_after_write_is_found_out(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        client = await scene.connect()
        buffer = bytearray(b"before")
        client.transport.write(buffer)
        buffer[:] = b"after!"
        await asyncio.sleep(10)
        assert client.data == b"after!"

    run(scene, body)


def test_closing_sends_what_is_buffered_and_then_ends_both_sides(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        scene.echo = False
        client = await scene.connect()
        client.transport.write(b"x" * 300_000)
        client.transport.close()
        client.transport.write(b"too late")
        await client.lost.wait()
        server = scene.accepted[0]
        await server.lost.wait()
        assert server.data == b"x" * 300_000
        assert server.events[-2:] == ["eof", "lost"]
        assert (client.error, server.error) == (None, None)

    run(scene, body)


def test_aborting_resets_the_other_side(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        client.transport.abort()
        await client.lost.wait()
        await scene.accepted[0].lost.wait()
        assert client.error is None
        assert isinstance(scene.accepted[0].error, ConnectionResetError)

    run(scene, body)


def test_a_reader_that_pauses_makes_the_writer_pause(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        scene.echo = False
        client = await scene.connect()
        await asyncio.sleep(1)
        server = scene.accepted[0]
        server.transport.pause_reading()
        total = WINDOW_BYTES + 200_000
        client.transport.write(b"y" * total)
        await asyncio.sleep(10)
        assert server.data == b""
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() == total - WINDOW_BYTES
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert len(server.data) == total
        assert client.events == ["made", "pause", "resume"]

    run(scene, body)


def test_a_cut_tells_both_ends(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        other = await scene.connect("other")
        assert scene.network.cut("client") == 1
        await client.lost.wait()
        await scene.accepted[0].lost.wait()
        assert isinstance(client.error, ConnectionResetError)
        assert other.events == ["made"]

    run(scene, body)


def test_a_black_hole_swallows_bytes_and_connections_until_it_is_lifted(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
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


def test_connections_are_refused_where_nobody_listens(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(ConnectionRefusedError):
            await scene.network.host("client").connect(Collector, "nowhere.example", 9092)
        scene.network.refuse("server")
        with pytest.raises(ConnectionRefusedError):
            await scene.connect()
        scene.network.accept("server")
        await scene.connect()
        with pytest.raises(OSError, match="in use"):
            await scene.network.host("server").listen(Collector, "server.example", 9092)

    run(scene, body)


def test_a_closed_listener_frees_its_port_and_leaves_connections(scene: Scene) -> None:
    async def body(scene: Scene) -> None:
        listening = await scene.network.host("server").listen(scene.make, "second.example", 0)
        assert listening.port != 0
        client = await scene.network.host("client").connect(Collector, listening.host, listening.port)
        assert isinstance(client, Collector)
        listening.close()
        client.transport.write(b"still here")
        await asyncio.sleep(5)
        assert client.data == b"still here"
        await scene.network.host("server").listen(scene.make, "second.example", listening.port)

    run(scene, body)


@pytest.mark.parametrize("silent", [False, True])
def test_a_vanished_process_hears_nothing_and_its_peers_are_reset(scene: Scene, silent: bool) -> None:
    async def body(scene: Scene) -> None:
        owner = SimulatedOwner("doomed")
        context = copy_context()
        context.run(OWNER.set, owner)
        doomed = Collector(echo=True)

        async def serve() -> None:
            await scene.network.host("doomed").listen(lambda: doomed, "doomed.example", 1)

        await scene.loop.create_task(serve(), context=context)
        client = await scene.network.host("client").connect(Collector, "doomed.example", 1)
        assert isinstance(client, Collector)
        await asyncio.sleep(1)
        client.transport.write(b"lost")
        owner.alive = False
        scene.network.vanish("doomed", silent=silent)
        await client.lost.wait()
        assert isinstance(client.error, ConnectionResetError)
        assert (doomed.data, doomed.events) == (b"", ["made"])
        with pytest.raises(ConnectionRefusedError):
            await scene.network.host("client").connect(Collector, "doomed.example", 1)

    run(scene, body)


def test_connections_overtake_each_other_and_the_seed_decides_how() -> None:
    def order(seed: int) -> list[int]:
        loop = SimulatedLoop()
        scene = Scene(loop, seed)
        arrived: list[int] = []

        async def body(scene: Scene) -> None:
            scene.echo = False
            clients = [await scene.connect(f"client {number}") for number in range(10)]
            await asyncio.sleep(1)
            for number, client in enumerate(clients):
                client.transport.write(bytes([number]))
            for _ in range(100):
                await asyncio.sleep(0.0001)
                arrived.extend(one.data[0] for one in scene.accepted if one.data and one.data[0] not in arrived)

        loop.run_until_complete(scene.run(body))
        loop.end()
        return arrived

    orders = [order(seed) for seed in range(5)]
    assert orders == [order(seed) for seed in range(5)]
    assert all(sorted(one) == list(range(10)) for one in orders)
    assert len({tuple(one) for one in orders}) > 1


def test_a_protocol_that_raises_ends_its_connection_and_fails_the_run() -> None:
    class Raising(Collector):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot read this")

    loop = SimulatedLoop()
    scene = Scene(loop, 1)

    async def body(scene: Scene) -> None:
        await scene.network.host("server").listen(Raising, "raising.example", 1)
        client = await scene.network.host("client").connect(Collector, "raising.example", 1)
        assert isinstance(client, Collector)
        client.transport.write(b"?")
        await client.lost.wait()

    loop.run_until_complete(scene.run(body))
    loop.end()
    assert len(loop.failures) == 1
    assert "cannot read this" in loop.failures[0]
