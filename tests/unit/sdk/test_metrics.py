"""Tests the metrics and the log lines of a client."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

import millstream
from builders.sdk import simulated_consumers
from builders.sdk.recorded_metrics import RecordedMetrics
from builders.sdk.scripted_broker import Cut, Refuse, Scene, play
from builders.sdk.simulated_consumers import GROUP, LONG_S, Ground
from millstream.model.errors import ErrorCode
from millstream.testing.simulated.clock import SimulatedClock


class Broken:
    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        raise ValueError("count")

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        raise ValueError("observe")


def connect(scene: Scene, metrics: Any, bootstrap: str = "broker1:9092") -> Any:
    return millstream.connect_async(
        bootstrap, network=scene.network.host("client"), clock=SimulatedClock(scene.loop), metrics=metrics
    )


def test_connections_requests_refusals_and_retries_are_counted() -> None:
    async def body(scene: Scene) -> None:
        recorded = RecordedMetrics()
        async with connect(scene, recorded, "nobody:1,broker1:9092") as client:
            scene.cluster.then("Metadata", Cut(after=False))
            await client.list_topics()
            scene.cluster.then("CreateTopics", Refuse(ErrorCode.NOT_CONTROLLER))
            with pytest.raises(millstream.MillstreamError):
                await client.create_topic("no such name")
            await client.create_topic("t")
        where = "broker1:9092"
        assert recorded.counted["connections_failed", "nobody:1"] >= 1
        assert recorded.counted["connections_opened", where] == 2
        assert recorded.counted["connections_lost", where] == 1
        assert recorded.counted["requests_lost", where] == 1
        assert recorded.counted["retries", "NETWORK_EXCEPTION"] == 1
        assert recorded.counted["requests_refused", where, "CreateTopics", "NOT_CONTROLLER"] == 1
        assert recorded.observed["request_seconds", where, "CreateTopics"] == 2

    play(body)


def test_exceptions_of_the_metrics_object_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene, Broken()) as client:
            assert await client.list_topics() == []

    play(body)
    assert "metrics object failed" in caplog.text


def test_connection_events_are_logged_by_the_sdk_loggers(caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene, None, "nobody:1,broker1:9092") as client:
            scene.cluster.then("Metadata", Cut(after=False))
            await client.list_topics()

    with caplog.at_level(logging.DEBUG, "millstream.sdk"):
        play(body)
    logged = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert ("millstream.sdk.cluster", "DEBUG", "connection opened broker=broker1:9092") in logged
    assert any(
        name == "millstream.sdk.cluster" and "connection failed broker=nobody:1" in text for name, _, text in logged
    )
    assert any(level == "INFO" and "the connection to broker1:9092 was lost" in text for _, level, text in logged)
    assert any(
        name == "millstream.sdk.retrying" and text.startswith("request retried error=") for name, _, text in logged
    )
    assert {level for _, level, _ in logged} <= {"DEBUG", "INFO"}


def test_messages_of_a_consumers_last_poll_are_counted_as_read(millstream_bootstrap: str) -> None:
    recorded = RecordedMetrics()
    with millstream.connect(millstream_bootstrap, metrics=recorded) as client:
        client.producer().put_many("counted", [b"a", b"b", b"c"]).result(60)
        with client.consumer("counted", start="beginning") as consumer:
            assert len(consumer.poll(60)) == 3
    assert recorded.counted["messages_put", "counted"] == 3
    assert recorded.counted["messages_read", "counted"] == 3
    assert recorded.counted["bytes_read", "counted"] > 0


@pytest.mark.parametrize("way", ["subscription", "iterators", "iterator calls"])
def test_messages_are_counted_as_read_once_by_every_kind_of_reader(way: str, millstream_bootstrap: str) -> None:
    recorded = RecordedMetrics()
    topic = f"counted-{way.replace(' ', '-')}"
    with millstream.connect(millstream_bootstrap, metrics=recorded) as client:
        client.producer().put_many(topic, [b"a", b"b", b"c"]).result(60)
        if way == "subscription":
            with client.subscription(topic, start="beginning") as subscription:
                assert len(subscription.poll(60)) == 3
                assert subscription.poll(0.1) == []
        elif way == "iterators":
            with client.iterators(topic, group=topic) as iterators:
                batch = iterators.poll(60)
                assert batch is not None
                assert len(batch.messages) == 3
                assert iterators.poll(0.1) is None
        else:
            calls = client.iterator_calls()
            calls.join(topic, "a")
            assert len(calls.read(calls.get(topic, "a", topic, 0)).messages) == 3
    assert recorded.counted["messages_read", topic] == 3
    assert recorded.counted["bytes_read", topic] > 0


@pytest.mark.parametrize("way", ["consumer", "consumer of a group", "subscription"])
def test_many_topics_need_no_more_metadata_requests_than_one(way: str) -> None:
    async def asked(ground: Ground, topics: list[str]) -> int:
        recorded = RecordedMetrics()
        client = await ground.machine.connect("counted", metrics=recorded)
        options: Any = {"start": "beginning"} | ({"group": GROUP} if way == "consumer of a group" else {})
        async with getattr(client, way.split()[0])(topics, **options) as reader:
            for topic in topics:
                await ground.writer.put(topic, [b"1"], partition=0)
            found = 0
            while found < len(topics):
                found += len(await reader.poll(LONG_S))
        await client.close()
        return sum(count for (_, *labels), count in recorded.observed.items() if labels[-1] == "Metadata")

    async def story(ground: Ground) -> None:
        many = [f"many-{number}" for number in range(20)]
        for topic in ["one", *many]:
            await ground.client.create_topic(topic)
        assert await asked(ground, many) <= await asked(ground, ["one"])

    simulated_consumers.play(story)
