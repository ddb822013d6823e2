"""Tests Metadata: brokers, topics, leaders, and the creation of requested topics."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.loops import for_each
from builders.partitions import CLUSTER, ELSEWHERE, HOST, NODE_ID, add_topic_elsewhere
from builders.served import ServedBroker, serve
from millstream.broker.encoded_topics import SLICE
from millstream.broker.handlers.metadata import CREATED_MAX
from millstream.model.errors import ErrorCode
from millstream.model.ids import BrokerId
from millstream.model.names import NO_TOPIC_ID

EVERY_VERSION = range(14)


def named(*names: str | None) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names]}


@for_each("version", EVERY_VERSION)
@pytest.mark.parametrize("by_name", [False, True])
def test_brokers_topics_and_leaders_are_listed_in_every_version(version: int, by_name: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic("events", partitions=2)
        await broker.topic("other")
        everything: dict[str, Any] = {"topics": None if version else []}
        peer = await broker.peer()
        answer = await peer.ask("Metadata", version, named("events", "other") if by_name else everything)
        assert [(b["node_id"], b["host"], b["port"]) for b in answer["brokers"]] == [(1, HOST, broker.port)]
        if version >= 1:
            assert answer["controller_id"] == 1
        if version >= 2:
            assert answer["cluster_id"] == CLUSTER
        events, other = answer["topics"]
        assert (events["name"], events["error_code"], len(events["partitions"])) == ("events", 0, 2)
        assert (other["name"], len(other["partitions"])) == ("other", 1)
        if version >= 10:
            assert events["topic_id"] == made.topic_id
        for number, partition in enumerate(events["partitions"]):
            assert (partition["partition_index"], partition["leader_id"]) == (number, 1)
            assert (partition["replica_nodes"], partition["isr_nodes"], partition["error_code"]) == ([1], [1], 0)
            assert partition["leader_epoch"] == (0 if version >= 7 else -1)

    serve(tmp_path, story)


def test_responses_follow_brokers_that_leave_and_the_controller(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("here")
        cluster, peer = broker.cluster, await broker.peer()
        add_topic_elsewhere(cluster, "there")

        async def shown() -> tuple[int, list[int]]:
            metadata = await peer.ask("Metadata", 12, {"topics": None})
            described = await peer.ask("DescribeCluster", 1, {})
            nodes = [each["node_id"] for each in metadata["brokers"]]
            assert described["controller_id"] == metadata["controller_id"]
            assert [each["broker_id"] for each in described["brokers"]] == nodes
            return metadata["controller_id"], nodes

        async def leaders() -> list[tuple[int, int]]:
            metadata = await peer.ask("Metadata", 12, {"topics": None})
            rows = [topic["partitions"][0] for topic in metadata["topics"]]
            return [(row["leader_id"], row["error_code"]) for row in rows]

        assert (await shown(), await leaders()) == ((1, [1, 2]), [(1, 0), (2, 0)])
        cluster.publish(cluster.image.controller_changed(ELSEWHERE.node_id))
        assert await shown() == (2, [1, 2])
        cluster.publish(cluster.image.broker_left(ELSEWHERE.node_id))
        assert (await shown(), await leaders()) == (
            (-1, [1]),
            [(1, 0), (-1, ErrorCode.LEADER_NOT_AVAILABLE.number)],
        )
        cluster.publish(cluster.image.controller_changed(BrokerId(NODE_ID)))
        cluster.publish(cluster.image.broker_registered(ELSEWHERE))
        assert (await shown(), await leaders()) == ((1, [1, 2]), [(1, 0), (2, 0)])

    serve(tmp_path, story)


def test_cached_responses_are_dropped_when_topics_change(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()

        async def names() -> list[str]:
            return [topic["name"] for topic in (await peer.ask("Metadata", 12, {"topics": None}))["topics"]]

        assert await names() == []
        await broker.topic("one")
        assert await names() == ["one"]
        assert await names() == ["one"]
        await broker.topic("another")
        assert await names() == ["another", "one"]
        await broker.partitions.delete("one")
        assert await names() == ["another"]

    serve(tmp_path, story)


@for_each("version", [0, 3, 4, 9, 13])
def test_an_unknown_topic_is_created_on_request(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("Metadata", version, named("fresh"))
        (topic,) = answer["topics"]
        assert (topic["error_code"], len(topic["partitions"])) == (0, 3)
        made = broker.partitions.image.topic("fresh")
        assert made is not None
        assert made.partitions == 3
        if version >= 10:
            assert topic["topic_id"] == made.topic_id != NO_TOPIC_ID

    serve(tmp_path, story, default_partitions=3)


@pytest.mark.parametrize(
    ("auto_create", "allowed"),
    [(False, True), (True, False)],
    ids=["not on this broker", "not wanted by the client"],
)
def test_an_unknown_topic_is_not_created_without_auto_creation(
    auto_create: bool, allowed: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        answer = await peer.ask("Metadata", 9, named("fresh") | {"allow_auto_topic_creation": allowed})
        assert answer["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert broker.partitions.image.topic("fresh") is None

    serve(tmp_path, story, auto_create=auto_create)


@pytest.mark.parametrize("name", ["", "no spaces", "x" * 250, "__internal", "u.alice.private"])
def test_topics_with_invalid_names_are_not_created(name: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("Metadata", 9, named(name))
        assert [(t["name"], t["error_code"]) for t in answer["topics"]] == [(name, ErrorCode.INVALID_TOPIC.number)]
        assert broker.partitions.image.names == ()

    serve(tmp_path, story)


def test_one_request_creates_a_limited_number_of_topics(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        names = [f"t{number}" for number in range(CREATED_MAX + 5)]
        peer = await broker.peer()
        answer = await peer.ask("Metadata", 9, named(*names))
        missing = [t["name"] for t in answer["topics"] if t["error_code"]]
        assert missing == names[CREATED_MAX:]
        answer = await peer.ask("Metadata", 9, named(*names))
        assert not any(t["error_code"] for t in answer["topics"])

    serve(tmp_path, story)


@for_each("version", [10, 11, 12, 13])
def test_topics_are_found_by_id(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic()
        peer = await broker.peer()
        wanted = {"topics": [{"topic_id": made.topic_id, "name": None}, {"topic_id": UUID(int=7), "name": None}]}
        found, unknown = (await peer.ask("Metadata", version, wanted))["topics"]
        assert (found["name"], found["error_code"]) == ("events", 0)
        assert (unknown["topic_id"], unknown["error_code"]) == (UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID.number)
        assert unknown["name"] == (None if version >= 12 else "")

    serve(tmp_path, story)


def test_authorized_operations_are_listed_only_on_request(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        told = []
        for wanted in (False, True, False):
            fields = named("events") | {
                "include_topic_authorized_operations": wanted,
                "include_cluster_authorized_operations": wanted,
            }
            answer = await peer.ask("Metadata", 8, fields)
            topic = answer["topics"][0]["topic_authorized_operations"]
            told.append((topic, answer["cluster_authorized_operations"]))
        nothing = (-(2**31), -(2**31))
        assert told[0] == told[2] == nothing
        assert all(value > 0 for value in told[1])

    serve(tmp_path, story)


def test_more_partitions_than_one_slice_are_encoded_completely(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=SLICE + 10)
        peer = await broker.peer()
        for _ in range(2):
            answer = await peer.ask("Metadata", 12, {"topics": None})
            assert [p["partition_index"] for p in answer["topics"][0]["partitions"]] == list(range(SLICE + 10))

    serve(tmp_path, story)
