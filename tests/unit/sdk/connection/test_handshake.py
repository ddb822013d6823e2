"""Tests that a client sends its version and its role first on each connection."""

from pathlib import Path

import pytest

import millstream
from builders.batches import batch
from builders.loops import for_each
from builders.partitions import HOST
from builders.sdk.scripted_broker import Scene, play
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.roles import Role
from millstream.sdk import requests
from millstream.sdk.client_context import ClientContext
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.cluster import ConnectionSettings
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.seams.clock import SystemClock
from millstream.seams.entropy import SystemEntropy
from millstream.seams.network import TcpNetwork
from millstream.testing.simulated.clock import SimulatedClock

WHERE = TopicPartition("events", 0)


def home_at(broker: ServedBroker, version: str = "1.5.0") -> ClientContext:
    return ClientContext(
        [Address(HOST, broker.port)],
        network=TcpNetwork(),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        settings=ConnectionSettings(),
        version=version,
    )


async def put_on(caller: RetryingCaller) -> None:
    connection = await caller.cluster.anyone(Deadline(30))
    await connection.request(requests.produce(WHERE, batch(), acks=-1, timeout_ms=30_000), 30)


async def fetch_on(caller: RetryingCaller) -> None:
    connection = await caller.cluster.anyone(Deadline(30))
    await connection.request(requests.fetch(WHERE, 0, max_bytes=1000, max_wait_ms=0), 30)


@pytest.mark.parametrize(
    ("role", "may_put", "may_fetch"),
    [(None, True, True), (Role.PRODUCER, True, False), (Role.CONSUMER, False, True)],
)
def test_the_broker_enforces_the_role_that_a_connection_declares(
    role: Role | None, may_put: bool, may_fetch: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        caller = home_at(broker).new_caller(role, "shop" if role is Role.PRODUCER else None)
        try:
            for operation, may in ((put_on, may_put), (fetch_on, may_fetch)):
                if may:
                    await operation(caller)
                    continue
                with pytest.raises(MillstreamError) as refused:
                    await operation(caller)
                assert refused.value.code is ErrorCode.POLICY_VIOLATION
        finally:
            caller.cluster.close()

    serve(tmp_path, story)


@for_each("version", ["1.3.0", "1.4.7", "1.5.0", "1.7.2", "1.6.0.dev3"])
def test_client_and_broker_two_minor_versions_apart_work_together(version: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        context = home_at(broker, version)
        await context.open(30, None)
        await context.lifecycle.close()

    serve(tmp_path, story)


@for_each("version", ["1.2.9", "1.8.0", "0.5.0", "2.5.0", "nonsense"])
def test_versions_outside_the_window_fail_at_once_and_name_both_versions(version: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        context = home_at(broker, version)
        with pytest.raises(MillstreamError) as refused:
            await context.open(3600, None)
        assert refused.value.code is ErrorCode.VERSION_WINDOW
        assert refused.value.detail.startswith(f"this SDK has version {version}, the broker at ")
        assert " 1.5.0;" in refused.value.detail
        with pytest.raises(MillstreamError) as refused:
            await put_on(context.new_caller(Role.PRODUCER))
        assert refused.value.code is ErrorCode.VERSION_WINDOW
        await context.lifecycle.close()

    serve(tmp_path, story)


def test_a_broker_without_the_apis_gets_neither_info_nor_role_requests() -> None:
    async def body(scene: Scene) -> None:
        async with millstream.connect_async(
            "broker1:9092", network=scene.network.host("client"), clock=SimulatedClock(scene.loop)
        ) as client:
            assert (await client.metadata()).cluster_id == "scripted"
            with pytest.raises(MillstreamError) as refused:
                await client.clock_drift()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            caller = client._context.new_caller(Role.PRODUCER)
            await caller.cluster.anyone(Deadline(30))
            caller.cluster.close()
        assert {name for _, name, _ in scene.cluster.seen} == {"ApiVersions", "Metadata"}

    play(body)
