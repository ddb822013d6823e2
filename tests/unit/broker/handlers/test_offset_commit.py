"""Tests OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from builders.loops import for_each
from builders.served import ServedBroker, produce, serve, topic_ref
from millstream.catalog.catalog import Topic
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID
from millstream.storage.store import FlushPolicy

GROUP = "readers"
UNKNOWN_ID = TopicId(UUID(int=7))
IDS_FROM, MANY_FROM = 10, 8


def named(topic: Topic | str, version: int) -> dict[str, Any]:
    """Return a topic in the form of this version. A string names a topic that does not exist."""
    if version >= IDS_FROM:
        return {"topic_id": topic.topic_id if isinstance(topic, Topic) else UNKNOWN_ID}
    return {"name": topic.name if isinstance(topic, Topic) else topic}


def committing(
    version: int, offsets: dict[int, int], *topics: Topic | str, metadata: str | None = "", **other: Any
) -> dict[str, Any]:
    epoch: dict[str, Any] = {"committed_leader_epoch": 3} if version >= 6 else {}
    rows: list[dict[str, Any]] = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": metadata} | epoch
        for number, offset in offsets.items()
    ]
    fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", **other}
    return fields | {"topics": [named(topic, version) | {"partitions": rows} for topic in topics]}


def fetching(version: int, partitions: list[int] | None, *topics: Topic | str) -> dict[str, Any]:
    rows = None
    if partitions is not None:
        rows = [
            (named(topic, version) if version >= MANY_FROM else named(topic, 0)) | {"partition_indexes": partitions}
            for topic in topics
        ]
    if version < MANY_FROM:
        return {"group_id": GROUP, "topics": rows}
    return {"groups": [{"group_id": GROUP, "topics": rows}]}


def found(version: int, answer: dict[str, Any]) -> dict[str, Any]:
    if version < MANY_FROM:
        return answer
    (group,) = answer["groups"]
    assert group["group_id"] == GROUP
    return dict(group)


def errors(answer: dict[str, Any]) -> list[list[int]]:
    return [[row["error_code"] for row in topic["partitions"]] for topic in answer["topics"]]


@for_each("version", range(2, 11))
def test_committed_offsets_are_fetched_in_every_version(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=3)
        peer = await broker.peer()
        committed = await peer.ask("OffsetCommit", version, committing(version, {0: 11, 2: 13}, topic, metadata="note"))
        assert errors(committed) == [[0, 0]]
        (row,) = committed["topics"]
        assert row["topic_id" if version >= IDS_FROM else "name"] == (
            topic.topic_id if version >= IDS_FROM else topic.name
        )
        for asked in ([0, 1, 2], None):
            answer = found(version, await peer.ask("OffsetFetch", version, fetching(version, asked, topic)))
            assert answer["error_code"] == 0
            (row,) = answer["topics"]
            offsets = {each["partition_index"]: each for each in row["partitions"]}
            assert {number: each["committed_offset"] for number, each in offsets.items()} == (
                {0: 11, 1: -1, 2: 13} if asked else {0: 11, 2: 13}
            )
            assert (offsets[0]["metadata"], offsets[2]["metadata"]) == ("note", "note")
            if version >= 6:
                assert offsets[0]["committed_leader_epoch"] == 3

    serve(tmp_path, story)


@for_each("version", range(2, 11))
def test_offsets_of_missing_partitions_cannot_be_committed(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=1)
        peer = await broker.peer()
        answer = await peer.ask("OffsetCommit", version, committing(version, {0: 1, 1: 1, -1: 1}, topic, "nowhere"))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        missing = ErrorCode.UNKNOWN_TOPIC_ID.number if version >= IDS_FROM else unknown
        assert errors(answer) == [[0, unknown, unknown], [missing] * 3]
        answer = found(version, await peer.ask("OffsetFetch", version, fetching(version, None)))
        assert [len(each["partitions"]) for each in answer["topics"]] == [1]

    serve(tmp_path, story)


@for_each("version", range(2, 11))
def test_an_unknown_member_cannot_commit(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=2)
        peer = await broker.peer()
        request = committing(version, {0: 1, 1: 1}, topic, member_id="x", generation_id_or_member_epoch=4)
        error = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        assert errors(await peer.ask("OffsetCommit", version, request)) == [[error.number] * 2]

    serve(tmp_path, story)


def test_too_long_metadata_is_refused_and_null_metadata_is_empty(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        long = await peer.ask("OffsetCommit", 8, committing(8, {0: 1}, topic, metadata="x" * 5_000))
        assert errors(long) == [[ErrorCode.OFFSET_METADATA_TOO_LARGE.number]]
        assert errors(await peer.ask("OffsetCommit", 8, committing(8, {0: 1}, topic, metadata=None))) == [[0]]
        (row,) = (await peer.ask("OffsetFetch", 7, fetching(7, [0], topic)))["topics"]
        assert (row["partitions"][0]["committed_offset"], row["partitions"][0]["metadata"]) == (1, "")

    serve(tmp_path, story)


def test_an_unknown_topic_id_is_an_error_of_each_partition(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        await peer.ask("OffsetCommit", 10, committing(10, {0: 5}, topic))
        answer = found(10, await peer.ask("OffsetFetch", 10, fetching(10, [0, 1], topic, "nowhere")))
        assert errors(answer) == [[0, 0], [ErrorCode.UNKNOWN_TOPIC_ID.number] * 2]
        assert [each["topic_id"] for each in answer["topics"]] == [topic.topic_id, UNKNOWN_ID]

    serve(tmp_path, story)


def test_a_recreated_topic_has_no_committed_offsets(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        await peer.ask("OffsetCommit", 8, committing(8, {0: 5}, topic))
        await broker.partitions.delete(topic.name)
        await broker.topic()
        (row,) = (await peer.ask("OffsetFetch", 7, fetching(7, [0], topic)))["topics"]
        assert row["partitions"][0]["committed_offset"] == -1

    serve(tmp_path, story)


@for_each("version", [8, 9, 10])
def test_offsets_of_several_groups_are_fetched_in_one_request(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        for number in range(3):
            await peer.ask("OffsetCommit", 8, committing(8, {0: number}, topic) | {"group_id": f"group-{number}"})
        rows = [named(topic, version) | {"partition_indexes": [0]}]
        groups = [{"group_id": f"group-{number}", "topics": rows} for number in range(4)]
        answer = await peer.ask("OffsetFetch", version, {"groups": groups})
        offsets = [group["topics"][0]["partitions"][0]["committed_offset"] for group in answer["groups"]]
        assert offsets == [0, 1, 2, -1]

    serve(tmp_path, story)


def test_a_commit_is_acknowledged_when_it_is_flushed(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic()
        peer = await broker.peer()
        for offset in range(20):
            assert errors(await peer.ask("OffsetCommit", 8, committing(8, {0: offset}, topic))) == [[0]]
        logs = [partition.log for partition in broker.partitions.of("__consumer_offsets")]
        assert sum(log.flushed_offset for log in logs) == 20

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_single_offsets_are_deleted(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic(partitions=2)
        peer = await broker.peer()
        rows = [{"name": "events", "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
        request = {"group_id": GROUP, "topics": [*rows, {"name": "nowhere", "partitions": [{"partition_index": 0}]}]}
        refused = await peer.ask("OffsetDelete", 0, request)
        assert (refused["error_code"], refused["topics"]) == (ErrorCode.GROUP_ID_NOT_FOUND.number, [])
        await peer.ask("OffsetCommit", 8, committing(8, {0: 1, 1: 2}, topic))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        deleted = await peer.ask("OffsetDelete", 0, request)
        assert deleted["error_code"] == 0
        assert errors(deleted) == [[0, unknown], [unknown]]
        (row,) = (await peer.ask("OffsetFetch", 7, fetching(7, None)))["topics"]
        assert [each["partition_index"] for each in row["partitions"]] == [1]

    serve(tmp_path, story)


@for_each("version", range(3, 14))
def test_clients_cannot_write_alter_or_delete_the_internal_topic(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.groups.ensure()
        topic = broker.partitions.image.topic("__consumer_offsets")
        assert topic is not None
        peer = await broker.peer()
        result = await produce(peer, topic_ref(topic, version), version=version)
        assert result.error == ErrorCode.INVALID_TOPIC.number
        deleting = {"topics": [{"name": topic.name, "topic_id": NO_TOPIC_ID}]}
        (row,) = (await peer.ask("DeleteTopics", 6, deleting))["responses"]
        assert row["error_code"] == ErrorCode.TOPIC_DELETION_DISABLED.number
        assert "delete the groups" in row["error_message"]
        change = {"name": "cleanup.policy", "config_operation": 0, "value": "delete"}
        altering = {"resources": [{"resource_type": 2, "resource_name": topic.name, "configs": [change]}]}
        (row,) = (await peer.ask("IncrementalAlterConfigs", 1, altering))["responses"]
        assert row["error_code"] == ErrorCode.POLICY_VIOLATION.number

    serve(tmp_path, story)


def test_a_commit_with_full_access_checks_no_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic("events")
        peer = await broker.peer()
        checked: list[str] = []
        monkeypatch.setattr(Access, "check_topic", lambda *_, **__: checked.append("topic"))
        monkeypatch.setattr(Access, "check_group", lambda *_: checked.append("group"))
        answer = await peer.ask("OffsetCommit", 10, committing(10, {0: 1}, topic))
        assert (errors(answer), checked) == ([[0]], [])

    serve(tmp_path, story)
