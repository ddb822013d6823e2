"""Tests CreateTopics and DeleteTopics: each topic succeeds or fails separately."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.loops import for_each
from builders.requests import RawPeer
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode
from millstream.topics.setting_table import TABLE


def wanted(name: str = "events", partitions: int = 1, replication_factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replication_factor, **more}


async def create(peer: RawPeer, *topics: dict[str, Any], version: int = 7, **more: Any) -> list[dict[str, Any]]:
    answer = await peer.ask("CreateTopics", version, {"topics": list(topics), **more})
    rows: list[dict[str, Any]] = answer["topics"]
    return rows


@for_each("version", range(2, 8))
def test_a_topic_is_created_with_the_requested_layout(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        settings = [{"name": "retention.ms", "value": "60000"}]
        (row,) = await create(await broker.peer(), wanted(partitions=3, configs=settings), version=version)
        made = broker.partitions.image.topic("events")
        assert made is not None
        assert (row["error_code"], row["error_message"]) == (0, None)
        assert (made.partitions, made.settings) == (3, {"retention.ms": "60000"})
        if version >= 5:
            assert (row["num_partitions"], row["replication_factor"]) == (3, 1)
            shown = {each["name"]: (each["value"], each["config_source"]) for each in row["configs"]}
            assert shown.keys() == TABLE.keys()
            assert (shown["retention.ms"], shown["retention.bytes"]) == (("60000", 1), ("-1", 5))
        if version >= 7:
            assert row["topic_id"] == made.topic_id

    serve(tmp_path, story)


def test_minus_one_selects_the_brokers_defaults(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        (row,) = await create(await broker.peer(), wanted(partitions=-1, replication_factor=-1))
        assert (row["error_code"], row["num_partitions"], row["replication_factor"]) == (0, 4, 1)

    serve(tmp_path, story, default_partitions=4)


def test_replicas_may_be_assigned_to_the_only_broker(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        hands = [{"partition_index": number, "broker_ids": [1]} for number in (1, 0)]
        (row,) = await create(await broker.peer(), wanted(partitions=-1, replication_factor=-1, assignments=hands))
        assert (row["error_code"], row["num_partitions"]) == (0, 2)

    serve(tmp_path, story)


def assigned(*rows: tuple[int, list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": number, "broker_ids": brokers} for number, brokers in rows]


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (wanted("no spaces"), ErrorCode.INVALID_TOPIC, "no spaces"),
        (wanted("__hidden"), ErrorCode.INVALID_TOPIC, "reserved"),
        (wanted("taken"), ErrorCode.TOPIC_ALREADY_EXISTS, "taken"),
        (wanted("also_taken"), ErrorCode.INVALID_TOPIC, "also.taken"),
        (wanted(partitions=0), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
        (wanted(partitions=-2), ErrorCode.INVALID_PARTITIONS, "-2"),
        (wanted(partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS, "10000"),
        (wanted(replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR, "3"),
        (wanted(replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "0"),
        (wanted(configs=[{"name": "retention.ms", "value": "soon"}]), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (wanted(configs=[{"name": "colour", "value": "blue"}]), ErrorCode.INVALID_CONFIG, "colour"),
        (wanted(configs=[{"name": "retention.ms", "value": None}]), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (wanted(configs=[{"name": "segment.ms", "value": "1"}] * 2), ErrorCode.INVALID_CONFIG, "twice"),
        (wanted(assignments=assigned((0, [1]))), ErrorCode.INVALID_REQUEST, "-1"),
        (wanted("x", -1, -1, assignments=assigned((1, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0, 1, 2"),
        (wanted("x", -1, -1, assignments=assigned((0, [2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "[2]"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_topics_are_refused_with_a_reason_and_others_created(
    topic: dict[str, Any], code: ErrorCode, says: str, validate_only: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        for name in ("taken", "also.taken"):
            await broker.topic(name)
        peer = await broker.peer()
        bad, good = await create(peer, topic, wanted("good"), validate_only=validate_only)
        assert bad["error_code"] == code.number
        assert says in bad["error_message"]
        assert good["error_code"] == 0
        assert (broker.partitions.image.topic("good") is None) == validate_only
        assert (broker.partitions.image.topic(topic["name"]) is not None) == (topic["name"] == "taken")

    serve(tmp_path, story)


def test_a_topic_named_twice_is_not_created(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        (row,) = await create(await broker.peer(), wanted(), wanted())
        assert row["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert broker.partitions.image.names == ()

    serve(tmp_path, story)


@for_each("version", range(1, 7))
def test_topics_are_deleted_by_name(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        names = ["events", "unknown"]
        fields = {"topics": [{"name": name} for name in names]} if version >= 6 else {"topic_names": names}
        gone, unknown = (await peer.ask("DeleteTopics", version, fields))["responses"]
        assert (gone["name"], gone["error_code"]) == ("events", 0)
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert broker.partitions.image.names == ()

    serve(tmp_path, story)


def test_a_topic_named_twice_or_without_a_name_is_not_deleted(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic()
        peer = await broker.peer()
        by_id = {"name": None, "topic_id": made.topic_id}
        fields = {"topics": [{"name": "events"}, {"name": "events"}, by_id, by_id, {"name": None}]}
        rows = (await peer.ask("DeleteTopics", 6, fields))["responses"]
        assert [row["error_code"] for row in rows] == [ErrorCode.INVALID_REQUEST.number] * 3
        assert broker.partitions.image.topic("events") == made

    serve(tmp_path, story)


def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic()
        peer = await broker.peer()
        both = {"name": "events", "topic_id": made.topic_id}
        fields = {"topics": [both, {"topic_id": UUID(int=5)}, {"topic_id": made.topic_id}]}
        ambiguous, unknown, gone = (await peer.ask("DeleteTopics", 6, fields))["responses"]
        assert ambiguous["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID.number
        assert (gone["name"], gone["topic_id"], gone["error_code"]) == ("events", made.topic_id, 0)

    serve(tmp_path, story)
