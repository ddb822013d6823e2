"""Tests the administration APIs besides settings: partition growth, topic pages, log sizes, producers, cluster."""

from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, numbered_batch
from builders.loops import for_each
from builders.partitions import CLUSTER, HOST, NODE_ID
from builders.requests import RawPeer
from builders.served import ServedBroker, produce, serve
from millstream.broker.dispatch.authorized_operations import cluster_operations, topic_operations
from millstream.model.authorization import FULL_ACCESS
from millstream.model.errors import ErrorCode
from millstream.seams.disk import Space
from millstream.seams.local_disk import LocalDisk
from millstream.testing.simulated.disk import SPACE_BYTES

NO_OPERATIONS = -(2**31)


# Growth.


async def grow(peer: RawPeer, *topics: dict[str, Any], version: int = 3, **options: Any) -> list[Any]:
    fields = {"topics": list(topics), "timeout_ms": 1000, "validate_only": False, **options}
    rows: list[Any] = (await peer.ask("CreatePartitions", version, fields))["results"]
    return rows


def to(name: str, count: int, *nodes: list[int], assigned: bool = False) -> dict[str, Any]:
    assignments = [{"broker_ids": each} for each in nodes] if nodes or assigned else None
    return {"name": name, "count": count, "assignments": assignments}


@for_each("version", range(4))
def test_new_partitions_appear_in_metadata_at_once(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer = await broker.peer()
        asked = {"topics": [{"name": "events"}]}
        assert len((await peer.ask("Metadata", 12, asked))["topics"][0]["partitions"]) == 2
        for validate_only, left in ((True, 2), (False, 4)):
            wanted = to("events", 4, [NODE_ID], [NODE_ID])
            (row,) = await grow(peer, wanted, version=version, validate_only=validate_only)
            assert (row["name"], row["error_code"], row["error_message"]) == ("events", 0, None)
            assert len((await peer.ask("Metadata", 12, asked))["topics"][0]["partitions"]) == left
        assert (await produce(peer, "events", partition=3)).error == 0

    serve(tmp_path, story)


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (to("unknown", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (to("events", 2), ErrorCode.INVALID_PARTITIONS),
        (to("events", 1), ErrorCode.INVALID_PARTITIONS),
        (to("events", 0), ErrorCode.INVALID_PARTITIONS),
        (to("events", -1), ErrorCode.INVALID_PARTITIONS),
        (to("events", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (to("events", 3, [NODE_ID], [NODE_ID]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (to("events", 3, assigned=True), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (to("events", 3, [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (to("events", 3, [NODE_ID, NODE_ID]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (to("events", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_growth_is_refused_with_a_reason_and_other_topics_grow(
    topic: dict[str, Any], code: ErrorCode, validate_only: bool, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        await broker.topic("good")
        bad, good = await grow(await broker.peer(), topic, to("good", 3), validate_only=validate_only)
        assert bad["error_code"] == code.number
        assert bad["error_message"]
        assert good["error_code"] == 0
        assert len(broker.partitions.of("events")) == 2
        assert len(broker.partitions.of("good")) == (1 if validate_only else 3)

    serve(tmp_path, story)


def test_a_topic_named_twice_does_not_grow(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        (row,) = await grow(await broker.peer(), to("events", 2), to("events", 3))
        assert row["error_code"] == ErrorCode.INVALID_REQUEST.number
        assert len(broker.partitions.of("events")) == 1

    serve(tmp_path, story)


# Pages of topics.


async def page(peer: RawPeer, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> dict[str, Any]:
    fields = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    return await peer.ask("DescribeTopicPartitions", 0, fields)


def seen(answer: dict[str, Any]) -> list[tuple[str, int]]:
    return [(topic["name"], row["partition_index"]) for topic in answer["topics"] for row in topic["partitions"]]


def test_topics_are_described_by_name(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        made = await broker.topic(partitions=2)
        answer = await page(await broker.peer(), "unknown", "events", "no spaces", "events")
        events, bad, unknown = answer["topics"]
        assert [row["name"] for row in answer["topics"]] == ["events", "no spaces", "unknown"]
        assert (events["topic_id"], events["error_code"], events["is_internal"]) == (made.topic_id, 0, False)
        assert events["topic_authorized_operations"] == topic_operations(FULL_ACCESS, "")
        assert events["partitions"][1] == {
            "error_code": 0,
            "partition_index": 1,
            "leader_id": NODE_ID,
            "leader_epoch": 0,
            "replica_nodes": [NODE_ID],
            "isr_nodes": [NODE_ID],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
            "offline_replicas": [],
        }
        assert bad["error_code"] == ErrorCode.INVALID_TOPIC.number
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
        assert answer["next_cursor"] is None

    serve(tmp_path, story)


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("named", [True, False])
def test_pages_list_each_partition_once(limit: int, named: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topics = {"a": 3, "b": 1, "c": 2}
        for name, partitions in topics.items():
            await broker.topic(name, partitions)
        peer = await broker.peer()
        found: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            answer = await page(peer, *(topics if named else ()), limit=limit, cursor=cursor)
            assert len(seen(answer)) <= max(1, limit)
            found += seen(answer)
            if answer["next_cursor"] is None:
                break
            cursor = answer["next_cursor"]["topic_name"], answer["next_cursor"]["partition_index"]
        assert found == [(name, number) for name, partitions in topics.items() for number in range(partitions)]

    serve(tmp_path, story)


def test_no_page_is_larger_than_the_broker_allows(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2_001)
        answer = await page(await broker.peer(), limit=2**31 - 1)
        assert len(seen(answer)) == 2_000
        assert answer["next_cursor"] == {"topic_name": "events", "partition_index": 2_000}

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("cursor", "found"),
    [
        (("b", 0), [("b", 0), ("c", 0), ("c", 1)]),
        (("aa", 9), [("b", 0), ("c", 0), ("c", 1)]),
        (("c", 7), []),
        (("z", 0), []),
    ],
)
def test_a_page_begins_at_its_cursor_also_when_its_topic_is_missing(
    cursor: tuple[str, int], found: list[tuple[str, int]], tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        for name, partitions in (("a", 3), ("b", 1), ("c", 2)):
            await broker.topic(name, partitions)
        assert seen(await page(await broker.peer(), cursor=cursor)) == found

    serve(tmp_path, story)


def test_an_invalid_cursor_is_refused(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        answer = await page(await broker.peer(), "events", "x", cursor=("events", -1))
        assert [row["error_code"] for row in answer["topics"]] == [ErrorCode.INVALID_REQUEST.number] * 2

    serve(tmp_path, story)


# Sizes.


@for_each("version", range(1, 6))
def test_data_directories_are_described_with_their_logs_and_free_space(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        await broker.topic("bills")
        peer = await broker.peer()
        records = numbered_batch(10)
        await produce(peer, "events", records, partition=1)
        answer = await peer.ask("DescribeLogDirs", version, {"topics": None})
        (directory,) = answer["results"]
        assert directory["log_dir"] == str(tmp_path / "data")
        assert directory["error_code"] == 0
        sizes = {
            (topic["name"], row["partition_index"]): (row["partition_size"], row["offset_lag"], row["is_future_key"])
            for topic in directory["topics"]
            for row in topic["partitions"]
        }
        empty = (0, 0, False)
        assert sizes == {("bills", 0): empty, ("events", 0): empty, ("events", 1): (len(records), 0, False)}
        if version >= 4:
            assert (directory["total_bytes"], directory["usable_bytes"]) == (SPACE_BYTES, SPACE_BYTES)

    serve(tmp_path, story)


def test_only_requested_logs_are_described_and_unknown_ones_left_out(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=3)
        await broker.topic("bills")
        wanted = [{"topic": "events", "partitions": [2, 0, 9]}, {"topic": "unknown", "partitions": [0]}]
        peer = await broker.peer()
        (directory,) = (await peer.ask("DescribeLogDirs", 4, {"topics": wanted}))["results"]
        told = [
            (topic["name"], [row["partition_index"] for row in topic["partitions"]]) for topic in directory["topics"]
        ]
        assert told == [("events", [0, 2])]
        (directory,) = (await peer.ask("DescribeLogDirs", 4, {"topics": []}))["results"]
        assert directory["topics"] == []

    serve(tmp_path, story)


class SecretiveDisk(LocalDisk):
    def space(self, path: str) -> Space:
        raise OSError(5, "Input/output error", path)


def test_a_volume_without_space_information_has_an_error_and_its_logs(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic()
        (directory,) = (await (await broker.peer()).ask("DescribeLogDirs", 4, {"topics": None}))["results"]
        assert directory["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR.number
        assert (directory["total_bytes"], directory["usable_bytes"], len(directory["topics"])) == (-1, -1, 1)

    serve(tmp_path, story, disk=SecretiveDisk())


# Producers.


def test_producers_of_a_partition_are_listed_with_their_last_sequence(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic(partitions=2)
        peer = await broker.peer()
        began_ms = broker.clock.wall_ms()
        for producer, epoch, count in ((7, 0, 1), (8, 3, 2)):
            records = batch(*[b"x"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=0)
            assert (await produce(peer, "events", records, partition=1)).error == 0
        broker.clock.turn(5_000)
        topics = [
            {"name": "events", "partition_indexes": [1, 0, 9, 1]},
            {"name": "unknown", "partition_indexes": [0]},
            {"name": "no spaces", "partition_indexes": [0]},
        ]
        answer = await peer.ask("DescribeProducers", 0, {"topics": topics})
        events, unknown, bad = answer["topics"]
        assert [row["partition_index"] for row in events["partitions"]] == [1, 0, 9]
        assert events["partitions"][0]["active_producers"] == [
            {
                "producer_id": producer,
                "producer_epoch": epoch,
                "last_sequence": last,
                "last_timestamp": began_ms,
                "coordinator_epoch": -1,
                "current_txn_start_offset": -1,
            }
            for producer, epoch, last in ((7, 0, 0), (8, 3, 1))
        ]
        assert (events["partitions"][1]["active_producers"], events["partitions"][1]["error_code"]) == ([], 0)
        unknown_code, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number, ErrorCode.INVALID_TOPIC.number
        assert events["partitions"][2]["error_code"] == unknown["partitions"][0]["error_code"] == unknown_code
        assert bad["partitions"][0]["error_code"] == invalid

    serve(tmp_path, story)


# The cluster.


@for_each("version", range(3))
@pytest.mark.parametrize("with_operations", [True, False])
def test_describe_cluster_lists_this_broker(version: int, with_operations: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        fields = {"include_cluster_authorized_operations": with_operations}
        answer = await (await broker.peer()).ask("DescribeCluster", version, fields)
        (row,) = answer["brokers"]
        assert (row["broker_id"], row["host"], row["port"]) == (NODE_ID, HOST, broker.port)
        assert (answer["error_code"], answer["cluster_id"], answer["controller_id"]) == (0, CLUSTER, NODE_ID)
        assert answer["cluster_authorized_operations"] == (
            cluster_operations(FULL_ACCESS) if with_operations else NO_OPERATIONS
        )

    serve(tmp_path, story)


@for_each("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (-1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_unknown_endpoint_types_are_refused(kind: int, code: ErrorCode, version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask("DescribeCluster", version, {"endpoint_type": kind})
        assert (answer["error_code"], answer["brokers"]) == (code.number, [])
        assert answer["error_message"]

    serve(tmp_path, story)
