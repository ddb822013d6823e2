"""Tests which error is reported when an operation reaches its deadline."""

import asyncio
import re

import pytest

from builders.sdk.scripted_broker import Fault, Late, Refuse, Scene, Silence, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import ATTEMPT_MIN_S, Deadline
from millstream.sdk.requests import LATEST


async def failure_of(operation: object) -> MillstreamError:
    with pytest.raises(MillstreamError) as caught:
        await operation  # type: ignore[misc]  # any awaitable will do
    return caught.value


@pytest.mark.parametrize("last", [Refuse(ErrorCode.KAFKA_STORAGE_ERROR), Silence(), Late(1000.0)])
def test_a_topic_creation_refused_until_the_deadline_raises_the_refusal(last: Fault) -> None:
    async def body(scene: Scene) -> None:
        refuse = Refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        scene.cluster.then("CreateTopics", refuse, refuse, refuse, *[last] * 100)
        error = await failure_of(scene.client().create_topic("t", timeout_s=3))
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert error.code.meaning in error.detail
        assert ("outcome is unknown" in error.detail) == (last != refuse)

    play(body)


def test_a_request_refused_until_the_deadline_raises_the_refusal() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("t")
        scene.cluster.then("ListOffsets", Refuse(ErrorCode.LEADER_NOT_AVAILABLE), *[Silence()] * 100)
        error = await failure_of(scene.client().list_offset("t", 0, LATEST, timeout_s=3))
        assert error.code is ErrorCode.LEADER_NOT_AVAILABLE

    play(body)


def test_a_fetch_beyond_the_log_end_ends_at_its_deadline_if_the_broker_is_silent() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.out_of_range_beyond_end = True
        scene.cluster.topic("t")
        client = scene.client()
        await client.metadata()
        scene.cluster.then("ListOffsets", *[Silence()] * 100)
        begun_s = scene.loop.time()
        await failure_of(client.fetch("t", 0, 100, max_wait_ms=1_000, timeout_s=3))
        assert scene.loop.time() - begun_s < 3.1

    play(body)


@pytest.mark.parametrize("timeout_s", [0.3, 0.55, 1.0, 2.1])
def test_no_attempt_starts_with_too_little_time_for_an_answer(timeout_s: float) -> None:
    async def body(scene: Scene) -> None:
        begun_s: list[float] = []
        scene.cluster.then("CreateTopics", *[Refuse(ErrorCode.KAFKA_STORAGE_ERROR)] * 100)
        client = scene.client()
        await client.metadata()
        end_s = scene.loop.time() + timeout_s
        ask = client._cluster.controller

        async def noting(deadline: Deadline) -> BrokerConnection:
            begun_s.append(scene.loop.time())
            return await ask(deadline)

        client._cluster.controller = noting  # type: ignore[method-assign]  # to see when attempts begin
        await failure_of(client.create_topic("t", timeout_s=timeout_s))
        assert len(begun_s) > 1
        assert end_s - begun_s[-1] >= ATTEMPT_MIN_S

    play(body)


@pytest.mark.parametrize("connected", [False, True])
def test_a_timeout_error_shows_the_rounded_duration(connected: bool) -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        if connected:
            await client.metadata()
            scene.cluster.then("Metadata", *[Silence()] * 10)
        else:
            scene.network.block("broker1")
        await asyncio.sleep(0.1234567)
        error = await failure_of(client.metadata(timeout_s=3.999987))
        assert re.search(r" in 4 s\b", error.detail), error.detail

    play(body)


def test_waiting_for_another_callers_connect_respects_the_own_timeout() -> None:
    async def body(scene: Scene) -> None:
        client = scene.client()
        scene.network.block("broker1")
        begun_s = scene.loop.time()
        patient = asyncio.create_task(client.metadata(timeout_s=60))
        await asyncio.sleep(0)
        error = await failure_of(client.metadata(timeout_s=1))
        assert scene.loop.time() - begun_s < 1.1
        assert "broker1:9092 did not answer in 1 s" in error.detail
        scene.network.unblock("broker1")
        await patient

    play(body)
