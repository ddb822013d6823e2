"""Tests the responses of a single broker without logins to APIs for ACLs, elections, reassignments and quotas."""

from pathlib import Path
from typing import Any

import pytest

from builders.loops import for_each
from builders.partitions import NODE_ID
from builders.served import ServedBroker, serve
from millstream.model.errors import ErrorCode

ACL_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL = {
    "resource_type": 2,
    "resource_name": "x",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@for_each("version", range(1, 4))
def test_acl_requests_are_answered_with_security_disabled(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        described = await peer.ask("DescribeAcls", version, ACL_FILTER)
        created = await peer.ask("CreateAcls", version, {"creations": [ACL] * 3})
        deleted = await peer.ask("DeleteAcls", version, {"filters": [ACL_FILTER] * 2})
        assert (len(created["results"]), len(deleted["filter_results"])) == (3, 2)
        for row in [described, *created["results"], *deleted["filter_results"]]:
            assert row["error_code"] == ErrorCode.SECURITY_DISABLED.number
            assert row["error_message"]

    serve(tmp_path, story)


@for_each("version", range(3))
def test_an_election_of_an_existing_partition_is_not_needed(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        topics = [{"topic": "events", "partitions": [0, 9]}, {"topic": "unknown", "partitions": [0]}]
        answer = await peer.ask("ElectLeaders", version, {"topic_partitions": topics})
        codes = {
            (topic["topic"], row["partition_id"]): row["error_code"]
            for topic in answer["replica_election_results"]
            for row in topic["partition_result"]
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        needless = ErrorCode.ELECTION_NOT_NEEDED.number
        assert codes == {("events", 0): needless, ("events", 9): unknown, ("unknown", 0): unknown}
        everything = await peer.ask("ElectLeaders", version, {"topic_partitions": None})
        assert (everything["error_code"], everything["replica_election_results"]) == (0, [])

    serve(tmp_path, story)


@for_each("version", [1, 2])
@pytest.mark.parametrize(("kind", "code"), [(1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)])
def test_an_unknown_election_type_is_refused(version: int, kind: int, code: ErrorCode, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        fields = {"election_type": kind, "topic_partitions": [{"topic": "events", "partitions": [0]}]}
        answer = await (await broker.peer()).ask("ElectLeaders", version, fields)
        assert answer["error_code"] == code.number
        ((row,),) = (topic["partition_result"] for topic in answer["replica_election_results"])
        expected = ErrorCode.ELECTION_NOT_NEEDED if code is ErrorCode.NONE else code
        assert row["error_code"] == expected.number

    serve(tmp_path, story)


@for_each("version", [0, 1])
@pytest.mark.parametrize(
    ("topic", "number", "replicas", "code"),
    [
        ("events", 0, [NODE_ID], ErrorCode.NONE),
        ("events", 0, [7], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 0, [NODE_ID, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("events", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("events", 1, [NODE_ID], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("unknown", 0, [NODE_ID], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_the_current_replicas_can_be_assigned(
    topic: str, number: int, replicas: list[int] | None, code: ErrorCode, version: int, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        rows = [{"partition_index": number, "replicas": replicas}]
        answer = await (await broker.peer()).ask(
            "AlterPartitionReassignments", version, {"topics": [{"name": topic, "partitions": rows}]}
        )
        ((row,),) = (response["partitions"] for response in answer["responses"])
        assert (answer["error_code"], row["partition_index"], row["error_code"]) == (0, number, code.number)

    serve(tmp_path, story)


@pytest.mark.parametrize("topics", [None, [{"name": "events", "partition_indexes": [0]}]])
def test_no_reassignment_is_ever_in_progress(topics: list[dict[str, Any]] | None, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        answer = await (await broker.peer()).ask("ListPartitionReassignments", 0, {"topics": topics})
        assert (answer["error_code"], answer["topics"]) == (0, [])

    serve(tmp_path, story)


def component(entity: str = "user", kind: int = 0, match: str | None = "alice") -> dict[str, Any]:
    return {"entity_type": entity, "match_type": kind, "match": match}


@for_each("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], ErrorCode.NONE),
        ([component(), component("client-id", 1, None), component("ip", 2, None)], ErrorCode.NONE),
        ([component("group")], ErrorCode.UNSUPPORTED_VERSION),
        ([component(kind=3)], ErrorCode.INVALID_REQUEST),
        ([component(match=None)], ErrorCode.INVALID_REQUEST),
        ([component(kind=1)], ErrorCode.INVALID_REQUEST),
        ([component(), component(match="bob")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_quota_filters_are_checked_and_find_nothing(
    components: list[dict[str, Any]], code: ErrorCode, version: int, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("DescribeClientQuotas", version, {"components": components})
        assert (answer["error_code"], answer["entries"]) == (code.number, None if code.number else [])

    serve(tmp_path, story)


def test_scram_credentials_are_never_found(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        peer = await broker.peer()
        nobodies: tuple[list[Any] | None, ...] = (None, [])
        for nobody in nobodies:
            answer = await peer.ask("DescribeUserScramCredentials", 0, {"users": nobody})
            assert (answer["error_code"], answer["results"]) == (0, [])
        users = [{"name": name} for name in ("alice", "bob", "bob")]
        answer = await peer.ask("DescribeUserScramCredentials", 0, {"users": users})
        assert [(row["user"], row["error_code"]) for row in answer["results"]] == [
            ("alice", ErrorCode.RESOURCE_NOT_FOUND.number),
            ("bob", ErrorCode.DUPLICATE_RESOURCE.number),
        ]

    serve(tmp_path, story)


@for_each("version", [1, 2])
def test_a_replica_can_only_be_moved_to_its_own_data_directory(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        peer = await broker.peer()
        (directory,) = (await peer.ask("DescribeLogDirs", 4, {"topics": None}))["results"]
        here, elsewhere = directory["log_dir"], "/no/such/directory"

        async def codes(*wanted: tuple[str, str, int]) -> dict[tuple[str, int], int]:
            dirs = [{"path": path, "topics": [{"name": name, "partitions": [number]}]} for path, name, number in wanted]
            answer = await peer.ask("AlterReplicaLogDirs", version, {"dirs": dirs})
            rows = [(topic["topic_name"], row) for topic in answer["results"] for row in topic["partitions"]]
            return {(name, row["partition_index"]): row["error_code"] for name, row in rows}

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert await codes((here, "events", 0)) == {("events", 0): 0}
        assert await codes((elsewhere, "events", 0)) == {("events", 0): ErrorCode.LOG_DIR_NOT_FOUND.number}
        assert await codes((here, "events", 9), (here, "unknown", 0)) == {
            ("events", 9): unknown,
            ("unknown", 0): unknown,
        }
        assert await codes() == {}

    serve(tmp_path, story)
