"""What a client tells of its work: to a metrics object, and to the log."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

import millstream
from builders.sdk import simulated_consumers
from builders.sdk.scripted_broker import Cut, Refuse, Scene, play
from builders.sdk.simulated_consumers import GROUP, LONG_S, Ground
from millstream.model.errors import ErrorCode
from millstream.testing.simulated.clock import SimulatedClock


class Noted:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.observed: Counter[tuple[str, ...]] = Counter()

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        self.counted[name, *labels.values()] += amount

    def observe(self, name: str, seconds: float, labels: Mapping[str, str]) -> None:
        assert seconds >= 0
        self.observed[name, *labels.values()] += 1


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
        noted = Noted()
        async with connect(scene, noted, "nobody:1,broker1:9092") as client:
            scene.cluster.then("Metadata", Cut(after=False))
            await client.list_topics()
            scene.cluster.then("CreateTopics", Refuse(ErrorCode.NOT_CONTROLLER))
            with pytest.raises(millstream.MillstreamError):
                await client.create_topic("no such name")
            await client.create_topic("t")
        where = "broker1:9092"
        assert noted.counted["connections_failed", "nobody:1"] >= 1
        assert noted.counted["connections_opened", where] == 2
        assert noted.counted["connections_lost", where] == 1
        assert noted.counted["requests_lost", where] == 1
        assert noted.counted["retries", "NETWORK_EXCEPTION"] == 1
        assert noted.counted["requests_refused", where, "CreateTopics", "NOT_CONTROLLER"] == 1
        assert noted.observed["request_seconds", where, "CreateTopics"] == 2

    play(body)


def test_a_metrics_object_that_fails_harms_nobody_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene, Broken()) as client:
            assert await client.list_topics() == []

    play(body)
    assert "the metrics object failed" in caplog.text


def test_what_happens_to_connections_is_logged_under_the_name_of_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    async def body(scene: Scene) -> None:
        async with connect(scene, None, "nobody:1,broker1:9092") as client:
            scene.cluster.then("Metadata", Cut(after=False))
            await client.list_topics()

    with caplog.at_level(logging.DEBUG, "millstream.sdk"):
        play(body)
    said = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert ("millstream.sdk.cluster", "DEBUG", "connected to broker1:9092") in said
    assert any(name == "millstream.sdk.cluster" and "no connection to nobody:1" in text for name, _, text in said)
    assert any(level == "INFO" and "the connection to broker1:9092 was lost" in text for _, level, text in said)
    assert any(name == "millstream.sdk.retrying" and text.startswith("trying again after") for name, _, text in said)
    assert {level for _, level, _ in said} <= {"DEBUG", "INFO"}


def test_messages_are_counted_as_read_also_those_that_a_consumer_took_last(millstream_bootstrap: str) -> None:
    noted = Noted()
    with millstream.connect(millstream_bootstrap, metrics=noted) as client:
        client.producer().put_many("counted", [b"a", b"b", b"c"]).result(60)
        with client.consumer("counted", start="beginning") as consumer:
            assert len(consumer.poll(60)) == 3
    assert noted.counted["messages_put", "counted"] == 3
    assert noted.counted["messages_read", "counted"] == 3
    assert noted.counted["bytes_read", "counted"] > 0


@pytest.mark.parametrize("way", ["subscription", "iterators", "iterator calls"])
def test_messages_are_counted_as_read_once_whichever_way_they_come(way: str, millstream_bootstrap: str) -> None:
    noted = Noted()
    topic = f"counted-{way.replace(' ', '-')}"
    with millstream.connect(millstream_bootstrap, metrics=noted) as client:
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
    assert noted.counted["messages_read", topic] == 3
    assert noted.counted["bytes_read", topic] > 0


@pytest.mark.parametrize("way", ["consumer", "consumer of a group", "subscription"])
def test_what_many_topics_are_is_asked_in_as_many_requests_as_for_one(way: str) -> None:
    async def asked(ground: Ground, topics: list[str]) -> int:
        noted = Noted()
        client = await ground.machine.connect("counted", metrics=noted)
        options: Any = {"start": "beginning"} | ({"group": GROUP} if way == "consumer of a group" else {})
        async with getattr(client, way.split()[0])(topics, **options) as reader:
            for topic in topics:
                await ground.writer.put(topic, [b"1"], partition=0)
            found = 0
            while found < len(topics):
                found += len(await reader.poll(LONG_S))
        await client.close()
        return sum(count for (_, *labels), count in noted.observed.items() if labels[-1] == "Metadata")

    async def story(ground: Ground) -> None:
        many = [f"many-{number}" for number in range(20)]
        for topic in ["one", *many]:
            await ground.client.create_topic(topic)
        assert await asked(ground, many) <= await asked(ground, ["one"])

    simulated_consumers.play(story)
