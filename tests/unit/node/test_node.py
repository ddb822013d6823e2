"""Tests that a node starts, stops, and releases everything that it opened, whichever step fails."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from builders.simulated_node import HOST, SimulatedMachine, simulate
from millstream.catalog.sqlite import SqliteCatalog
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.node import Node, topic_defaults
from millstream.node.settings import BrokerSettings
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.local_disk import LocalDisk
from millstream.seams.network import TcpNetwork
from millstream.seams.workers import ThreadWorkers
from millstream.topics.settings import TopicSettings

WAIT_S = 60.0


def with_node(settings: BrokerSettings, work: Callable[[Node], Awaitable[None]]) -> None:
    """Runs `work` with a node that is not started. Stops the node and its workers afterwards."""

    async def whole() -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        workers, flush_workers = ThreadWorkers(2, "disk"), ThreadWorkers(2, "flush")
        node = Node(
            settings,
            clock=clock,
            disk=LocalDisk(),
            network=TcpNetwork(),
            workers=workers,
            flush_workers=flush_workers,
            catalog=SqliteCatalog(
                Path(settings.data[0], "catalog.sqlite"), workers=workers, clock=clock, entropy=entropy
            ),
            entropy=entropy,
        )
        try:
            await asyncio.wait_for(work(node), WAIT_S)
        finally:
            await node.stop()
            workers.close()
            flush_workers.close()

    asyncio.run(whole())


def settings_for(data: Path, kafka_port: int = 0, operator_port: int = -1) -> BrokerSettings:
    return BrokerSettings(data=(str(data),), kafka_port=kafka_port, operator_port=operator_port)


def test_port_0_is_replaced_by_a_free_port_at_the_start(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await node.start()
        assert node.kafka_port > 0
        assert node.operator_port > 0
        assert node.kafka_port != node.operator_port

    with_node(settings_for(tmp_path, operator_port=0), work)


@pytest.mark.parametrize("taken", ["kafka_port", "operator_port"])
def test_a_start_that_fails_at_a_port_releases_the_data_directory(tmp_path: Path, taken: str) -> None:
    async def fail(node: Node) -> None:
        with pytest.raises(MillstreamError) as raised:
            await node.start()
        assert raised.value.code is ErrorCode.ADDRESS_UNAVAILABLE

    async def succeed(node: Node) -> None:
        await node.start()

    with socket.create_server(("127.0.0.1", 0)) as other:
        with_node(settings_for(tmp_path, **{taken: other.getsockname()[1]}), fail)
    with_node(settings_for(tmp_path), succeed)


def test_a_second_node_on_the_same_data_is_refused_until_the_first_stops(tmp_path: Path) -> None:
    async def refused(node: Node) -> None:
        with pytest.raises(MillstreamError) as raised:
            await node.start()
        assert raised.value.code is ErrorCode.DATA_DIRECTORY_IN_USE

    async def work(node: Node) -> None:
        await node.start()
        await asyncio.to_thread(with_node, settings_for(tmp_path), refused)
        await node.stop()
        await asyncio.to_thread(with_node, settings_for(tmp_path), Node.start)

    with_node(settings_for(tmp_path), work)


def test_a_node_that_never_started_can_be_stopped(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await node.stop()

    with_node(settings_for(tmp_path), work)


def test_a_stop_takes_less_than_a_second_when_fetches_wait() -> None:
    async def story(machine: SimulatedMachine) -> None:
        node = await machine.start()
        client = await machine.client()
        await client.put("orders", [b"one"])
        waiting = [asyncio.ensure_future(client.fetch("orders", 0, 1, max_wait_ms=600_000)) for _ in range(3)]
        await asyncio.sleep(5)
        assert not any(fetch.done() for fetch in waiting)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await node.stop()
        assert loop.time() - begun_s < 1
        client.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    simulate(BrokerSettings(data=("/data",), host=HOST, operator_port=-1), story)


def test_the_brokers_settings_are_defaults_of_topics() -> None:
    settings = BrokerSettings(retention_ms=60_000, retention_bytes=5, segment_bytes=20_000, segment_ms=2_000)
    topic = TopicSettings.of({"retention.bytes": "7"}, topic_defaults(settings))
    assert (topic.retention_ms, topic.retention_bytes) == (60_000, 7)
    assert (topic.segment_bytes, topic.segment_ms) == (20_000, 2_000)
    assert topic_defaults(BrokerSettings()) == {}, "a broker that was told nothing has the defaults of the table"
