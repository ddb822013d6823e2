"""Checks that the simulated network transfers bytes and breaks connections as TCP does."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from builders.simulations.network_scene import Collector, NetworkScene, run
from millstream.testing.simulated.loop import SimulatedLoop
from millstream.testing.simulated.process_owner import OWNER, SimulatedOwner
from millstream.testing.simulated.transport import WINDOW_BYTES


class BufferedCollector(asyncio.BufferedProtocol):
    """Receives into its own small buffer."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]


@pytest.fixture(params=range(5))
def scene(request: pytest.FixtureRequest) -> Iterator[NetworkScene]:
    loop = SimulatedLoop()
    scene = NetworkScene(loop, request.param)
    yield scene
    loop.end()
    assert loop.failures == []


def test_bytes_arrive_whole_and_in_order(scene: NetworkScene) -> None:
    sent = [bytes([number]) * (1 + number * 37) for number in range(100)]

    async def body(scene: NetworkScene) -> None:
        client = await scene.connect()
        for piece in sent[:50]:
            client.transport.write(piece)
        client.transport.writelines(sent[50:])
        await asyncio.sleep(60)
        assert client.data == b"".join(sent)

    run(scene, body)


def test_a_buffered_protocol_receives_into_its_own_buffer(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        receiver = BufferedCollector()
        await scene.network.host("server").listen(lambda: receiver, "buffered.example", 0)
        protocol = await scene.network.host("client").connect(Collector, "buffered.example", 40_000)
        assert isinstance(protocol, Collector)
        protocol.transport.write(bytes(range(256)))
        await asyncio.sleep(10)
        assert receiver.data == bytes(range(256))

    run(scene, body)


def test_a_buffer_modified_after_write_is_detected(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        client = await scene.connect()
        buffer = bytearray(b"before")
        client.transport.write(buffer)
        buffer[:] = b"after!"
        await asyncio.sleep(10)
        assert client.data == b"after!"

    run(scene, body)


def test_closing_sends_buffered_bytes_and_ends_both_sides(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
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


def test_aborting_resets_the_other_side(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        client.transport.abort()
        await client.lost.wait()
        await scene.accepted[0].lost.wait()
        assert client.error is None
        assert isinstance(scene.accepted[0].error, ConnectionResetError)

    run(scene, body)


def test_a_paused_reader_pauses_the_writer(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
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


def test_a_cut_connection_is_reported_to_both_ends(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        other = await scene.connect("other")
        assert scene.network.cut("client") == 1
        await client.lost.wait()
        await scene.accepted[0].lost.wait()
        assert isinstance(client.error, ConnectionResetError)
        assert other.events == ["made"]

    run(scene, body)


def test_connections_of_other_processes_survive_the_end_of_one_process(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        owners = [SimulatedOwner("first"), SimulatedOwner("second")]
        ends: list[Collector] = []
        for owner in owners:
            context = copy_context()
            context.run(OWNER.set, owner)
            ends.append(await scene.loop.create_task(scene.connect("shared"), context=context))
        await asyncio.sleep(1)
        owners[0].die()
        scene.network.process_gone(owners[0], silent=False)
        ends[1].transport.write(b"still here")
        await asyncio.sleep(5)
        assert ends[1].data == b"still here"
        assert sum("lost" in end.events for end in scene.accepted) == 1

    run(scene, body)


def test_connecting_to_a_port_without_a_listener_is_refused(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
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


def test_a_closed_listener_frees_its_port_and_keeps_connections(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
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
def test_a_vanished_process_is_not_notified_and_its_peers_are(scene: NetworkScene, silent: bool) -> None:
    async def body(scene: NetworkScene) -> None:
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
        owner.die()
        scene.network.vanish("doomed", silent=silent)
        await client.lost.wait()
        assert isinstance(client.error, ConnectionResetError) == silent, (
            "a kernel sends FIN, a power cut ends in a reset"
        )
        assert (doomed.data, doomed.events) == (b"", ["made"])
        with pytest.raises(ConnectionRefusedError):
            await scene.network.host("client").connect(Collector, "doomed.example", 1)

    run(scene, body)


def test_the_seed_determines_the_order_across_connections() -> None:
    def order(seed: int) -> list[int]:
        loop = SimulatedLoop()
        scene = NetworkScene(loop, seed)
        arrived: list[int] = []

        async def body(scene: NetworkScene) -> None:
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
    scene = NetworkScene(loop, 1)

    async def body(scene: NetworkScene) -> None:
        await scene.network.host("server").listen(Raising, "raising.example", 1)
        client = await scene.network.host("client").connect(Collector, "raising.example", 1)
        assert isinstance(client, Collector)
        client.transport.write(b"?")
        await client.lost.wait()

    loop.run_until_complete(scene.run(body))
    loop.end()
    assert len(loop.failures) == 1
    assert "cannot read this" in loop.failures[0]


def test_bytes_that_arrived_before_a_reset_are_delivered_first(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        server = SimulatedOwner("server")
        context = copy_context()
        context.run(OWNER.set, server)
        received = Collector()
        listening = asyncio.get_running_loop().create_task(
            scene.network.host("paused").listen(lambda: received, "paused.example", 1), context=context
        )
        await listening
        client = await scene.network.host("client").connect(Collector, "paused.example", 1)
        assert isinstance(client, Collector)
        await asyncio.sleep(1)
        scene.loop.pause(server)
        client.transport.write(b"hello")
        await asyncio.sleep(1)
        client.transport.abort()
        await asyncio.sleep(1)
        scene.loop.resume(server)
        await received.lost.wait()
        assert received.data == b"hello"
        assert isinstance(received.error, ConnectionResetError)

    run(scene, body)


@pytest.mark.parametrize(("unread", "events"), [(False, ["made", "eof", "lost"]), (True, ["made", "lost"])])
def test_a_killed_process_ends_its_streams_or_resets_them_if_bytes_are_unread(
    scene: NetworkScene, unread: bool, events: list[str]
) -> None:
    async def body(scene: NetworkScene) -> None:
        scene.echo = False
        client = await scene.connect()
        await asyncio.sleep(1)
        (server,) = scene.accepted
        if unread:
            server.transport.pause_reading()
            client.transport.write(b"nobody reads this")
            await asyncio.sleep(1)
        scene.network.vanish("server", silent=False)
        await client.lost.wait()
        assert client.events == events

    run(scene, body)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_two_machines_listen_on_the_same_local_address(scene: NetworkScene, host: str) -> None:
    async def body(scene: NetworkScene) -> None:
        protocols = {name: Collector(echo=True) for name in ("a", "b")}
        for name, protocol in protocols.items():
            await scene.network.host(name).listen(lambda protocol=protocol: protocol, host, 9092)  # type: ignore[misc]  # a lambda's default has no annotation
        client = await scene.network.host("b").connect(Collector, "127.0.0.1", 9092)
        assert isinstance(client, Collector)
        client.transport.write(b"to myself")
        await asyncio.sleep(1)
        assert (protocols["a"].data, protocols["b"].data) == (b"", b"to myself")
        with pytest.raises(ConnectionRefusedError):
            await scene.network.host("c").connect(Collector, "127.0.0.1", 9092)

    run(scene, body)


def test_a_wildcard_listener_accepts_connections_to_its_machines_name(scene: NetworkScene) -> None:
    async def body(scene: NetworkScene) -> None:
        await scene.network.host("a").listen(Collector, "0.0.0.0", 9092)
        await scene.network.host("b").connect(Collector, "a", 9092)
        with pytest.raises(ConnectionRefusedError):
            await scene.network.host("a").connect(Collector, "b", 9092)
        with pytest.raises(OSError, match="a:9092: Address already in use"):
            await scene.network.host("a").listen(Collector, "a", 9092)

    run(scene, body)
