"""Tests requests for partitions that another broker of the cluster leads."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer.fetch import FetchResponse as KafkaFetchResponse
from kafka.protocol.producer.produce import ProduceResponse as KafkaProduceResponse

from builders.batches import batch
from builders.held_workers import HoldingWorkers
from builders.loops import for_each
from builders.partitions import (
    ELSEWHERE,
    NODE_ID,
    a_cluster,
    add_partitions_elsewhere,
    add_topic_elsewhere,
    move_leader,
    placed,
)
from builders.requests import RawPeer
from builders.sdk.subscriber import Subscriber, wanted
from builders.served import ServedBroker, fetch_one, produce, puts, serve, topic_ref, until
from millstream.broker.dispatch.capabilities import find_placement, partition_by_hash
from millstream.coordination.key_hash import partition_of
from millstream.groups.runtime.coordinator import TOPIC
from millstream.model.authorization import FULL_ACCESS, Access, Principal
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.rights import Right
from millstream.partition.derived_state import ProducerLimits, nothing
from millstream.storage.flush.group_commit import GroupCommit
from millstream.storage.store import FlushPolicy
from millstream.wire.fetch import FetchPartition
from millstream.wire.fetch_client import write_fetch_request
from millstream.wire.messages import read_response
from millstream.wire.produce import write_produce_request
from millstream.wire.puts import write_puts_request
from millstream.wire.schema_readers import Fields

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER.number
EPOCH = 4


@for_each("version", range(3, 14))
def test_a_produce_response_names_the_current_leader(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic("events")
        add_partitions_elsewhere(broker.cluster, "events", 1)
        peer = await broker.peer()
        ref = topic_ref(topic, version)
        assert (await produce(peer, ref, version=version, partition=0)).error == 0
        body = write_produce_request(version, [(ref, [(1, b"")])], acks=-1, timeout_ms=1_000)
        answer = await peer.ask_raw("Produce", version, body)
        told = KafkaProduceResponse.decode(bytes(answer), version=version)
        ((row,),) = [each.partition_responses for each in told.responses]
        assert (row.index, row.error_code) == (1, MOVED)
        if version >= 10:
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, EPOCH)
            (node,) = told.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == ELSEWHERE

    serve(tmp_path, story)


async def answered_late(broker: ServedBroker, peer: RawPeer, is_waiting: Callable[[], bool]) -> KafkaProduceResponse:
    """Return the response to a batch whose partition gets another leader while the request waits."""
    body = write_produce_request(12, [("events", [(0, batch(keys=[b"key"]))])], acks=-1, timeout_ms=60_000)
    answering = asyncio.ensure_future(peer.ask_raw("Produce", 12, body))
    await until(is_waiting)
    await move_leader(broker.catalog, broker.partitions, ("events", 0), ELSEWHERE.node_id)
    return KafkaProduceResponse.decode(bytes(await answering), version=12)


def check_names_the_leader(told: KafkaProduceResponse, epoch: int) -> None:
    ((row,),) = [each.partition_responses for each in told.responses]
    assert row.error_code == MOVED
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, epoch)
    (node,) = told.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == ELSEWHERE


def test_a_write_in_flight_during_a_change_of_leader_names_the_new_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        broker.cluster.publish(broker.cluster.image.broker_registered(ELSEWHERE))
        (partition,) = broker.partitions.of("events")
        monkeypatch.setattr(GroupCommit, "request", lambda *_: None)  # Nothing is flushed from here on.
        told = await answered_late(broker, await broker.peer(), lambda: partition.waiting > 0)
        check_names_the_leader(told, partition.leader_epoch + 1)

    serve(tmp_path, story, policy=FlushPolicy.ALWAYS)


def test_a_batch_in_decompression_when_the_leader_changes_names_the_new_leader(tmp_path: Path) -> None:
    workers = HoldingWorkers()

    async def story(broker: ServedBroker) -> None:
        await broker.topic("events", cleanup_policy="compact")
        broker.cluster.publish(broker.cluster.image.broker_registered(ELSEWHERE))
        (partition,) = broker.partitions.of("events")
        workers.hold_next(has_run=True)
        peer = await broker.peer()
        answering = asyncio.ensure_future(answered_late(broker, peer, workers.held.is_set))
        await until(lambda: partition.is_closed)
        workers.release()
        check_names_the_leader(await answering, partition.leader_epoch + 1)
        assert partition.log.end_offset == 0, "the batch was not appended"

    serve(tmp_path, story, workers=workers, policy=FlushPolicy.ALWAYS)


@for_each("version", range(4, 19))
def test_a_fetch_response_names_the_current_leader(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = add_topic_elsewhere(broker.cluster, "events")
        peer = await broker.peer()
        wanted = [(topic_ref(topic, version), [FetchPartition(0, 0, 1_000)])]
        body = write_fetch_request(version, wanted, max_wait_ms=60_000)
        answer = await peer.ask_raw("Fetch", version, [body])
        told = KafkaFetchResponse.decode(bytes(answer), version=version)
        ((row,),) = [each.partitions for each in told.responses]
        assert (row.partition_index, row.error_code) == (0, MOVED)
        if version >= 12:
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, EPOCH)
        if version >= 16:
            (node,) = told.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == ELSEWHERE

    serve(tmp_path, story)


def test_a_puts_response_names_the_current_leader(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        add_topic_elsewhere(broker.cluster, "events")
        body = write_puts_request([("events", [(0, 0, batch(), None)])], acks=-1, timeout_ms=1_000)
        told = await (await broker.peer()).ask_raw("Puts", 0, body)
        fields = read_response("Puts", 0, told, 0)
        (row,) = fields["topics"][0]["entries"]
        assert row["error_code"] == MOVED
        assert row["current_leader"] == {"leader_id": 2, "leader_epoch": EPOCH}
        assert fields["node_endpoints"] == [ELSEWHERE._asdict()]

    serve(tmp_path, story)


@for_each("version", range(12, 19))
def test_fetch_under_an_older_leader_epoch_names_the_current_leader(version: int, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = await broker.topic("events")
        (partition,) = broker.partitions.of("events")
        placement = placed(topic.topic_id, 0, NODE_ID, epoch=EPOCH, change=1)
        partition.suspend("is being read back")
        partition.placement_changed(placement)
        partition.resume(nothing(ProducerLimits()))
        broker.cluster.publish(broker.cluster.image.placements_changed([placement]))
        wanted = [(topic_ref(topic, version), [FetchPartition(0, 0, 1_000, leader_epoch=EPOCH - 1)])]
        body = write_fetch_request(version, wanted, max_wait_ms=60_000)
        answer = await (await broker.peer()).ask_raw("Fetch", version, [body])
        told = KafkaFetchResponse.decode(bytes(answer), version=version)
        ((row,),) = [each.partitions for each in told.responses]
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH.number
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (NODE_ID, EPOCH)

    serve(tmp_path, story)


def check_names_broker_2(row: Fields, answer: Fields, epoch: int) -> None:
    assert row["error_code"] == MOVED
    assert row["current_leader"] == {"leader_id": 2, "leader_epoch": epoch}
    assert answer["node_endpoints"] == [ELSEWHERE._asdict()]


def test_a_subscribe_response_names_the_current_leader(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        add_topic_elsewhere(broker.cluster, "events")
        answer = await Subscriber(await broker.peer()).ask("Subscribe", {"topics": wanted({"events": {0: 0}})})
        (row,) = answer["partitions"]
        check_names_broker_2(row, answer, EPOCH)

    serve(tmp_path, story)


def test_a_subscription_names_the_new_leader_when_the_leader_changes(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        broker.cluster.publish(broker.cluster.image.broker_registered(ELSEWHERE))
        reader = await Subscriber(await broker.peer()).subscribe({"events": {0: 0}})
        await move_leader(broker.catalog, broker.partitions, ("events", 0), ELSEWHERE.node_id)
        answer = await reader.delivery()
        (row,) = answer["partitions"]
        check_names_broker_2(row, answer, 1)

    serve(tmp_path, story)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["before", "while"])
def test_a_read_of_an_iterator_names_the_new_leader_when_it_changes(is_waiting: bool, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        broker.cluster.publish(broker.cluster.image.broker_registered(ELSEWHERE))
        peer = await broker.peer()
        names = {"group_id": "readers", "client_id": "c1"}
        await peer.ask("IteratorJoin", 0, names)
        got = await peer.ask("GetIterator", 0, {**names, "topic": "events", "partition": 0, "max_messages": 10})
        read = {"iterator": got["given"]["iterator"], "max_bytes": 1_000, "max_wait_ms": 60_000}
        reading = asyncio.ensure_future(peer.ask("ReadIterator", 0, read)) if is_waiting else None
        if is_waiting:
            (partition,) = broker.partitions.of("events")
            await until(lambda: partition.waiting > 0)
        await move_leader(broker.catalog, broker.partitions, ("events", 0), ELSEWHERE.node_id)
        answer = await (reading or peer.ask("ReadIterator", 0, read))
        check_names_broker_2(answer, answer, 1)

    serve(tmp_path, story)


def test_partitions_led_here_are_fetched_beside_others(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        add_partitions_elsewhere(broker.cluster, "events", 1)
        peer = await broker.peer()
        await produce(peer, "events")
        assert (await fetch_one(peer, "events", 0)).high_watermark == 1
        assert (await fetch_one(peer, "events", 0, partition=1)).error == MOVED
        assert (await fetch_one(peer, "events", 0, partition=2)).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number

    serve(tmp_path, story)


def test_a_leader_that_is_not_registered_has_no_address(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = add_topic_elsewhere(broker.cluster, "events")
        row = placed(topic.topic_id, 0, 9, epoch=5, change=1)
        broker.cluster.publish(broker.cluster.image.placements_changed([row]))
        peer = await broker.peer()
        body = write_produce_request(12, [("events", [(0, b"")])], acks=-1, timeout_ms=1_000)
        told = KafkaProduceResponse.decode(bytes(await peer.ask_raw("Produce", 12, body)), version=12)
        leader = told.responses[0].partition_responses[0].current_leader
        assert ((leader.leader_id, leader.leader_epoch), list(told.node_endpoints)) == ((9, 5), [])
        (shown,) = (await peer.ask("Metadata", 12, {"topics": None}))["topics"]
        (partition,) = shown["partitions"]
        assert partition["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE.number
        assert (partition["leader_id"], partition["leader_epoch"], partition["offline_replicas"]) == (-1, 5, [9])

    serve(tmp_path, story)


def test_puts_by_hash_name_the_partition_that_is_led_elsewhere(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events", partitions=2)
        add_partitions_elsewhere(broker.cluster, "events", 3)
        peer = await broker.peer()
        results = [await puts(peer, "events", partition=-1, hashed=hashed) for hashed in range(10)]
        assert [result.partition for result in results] == [hashed % 5 for hashed in range(10)]
        assert [(row.error, row.not_appended) for row in results] == ([(0, False)] * 2 + [(MOVED, True)] * 3) * 2
        unknown = await puts(peer, "unknown", partition=-1, hashed=3)
        assert (unknown.partition, unknown.error) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number)

    serve(tmp_path, story)


ASKED: dict[str, tuple[int, dict[str, Any]]] = {
    "ListOffsets": (6, {"topics": [{"name": "events", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}),
    "OffsetForLeaderEpoch": (4, {"topics": [{"topic": "events", "partitions": [{"partition": 0}]}]}),
    "DeleteRecords": (2, {"timeout_ms": 1_000, "topics": [{"name": "events", "partitions": [{"partition_index": 0}]}]}),
    "DescribeProducers": (0, {"topics": [{"name": "events", "partition_indexes": [0]}]}),
}


@pytest.mark.parametrize("api", ASKED)
def test_other_apis_refuse_a_partition_that_is_led_elsewhere(api: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        add_topic_elsewhere(broker.cluster, "events")
        version, fields = ASKED[api]
        answer = await (await broker.peer()).ask(api, version, fields)
        (topic,) = answer["topics"]
        assert [row["error_code"] for row in topic["partitions"]] == [MOVED]

    serve(tmp_path, story)


def test_metadata_and_describe_cluster_show_the_whole_cluster(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.topic("events")
        add_partitions_elsewhere(broker.cluster, "events", 1)
        peer = await broker.peer()
        for api, fields in (
            ("Metadata", {"topics": None}),
            ("DescribeTopicPartitions", {"topics": [{"name": "events"}]}),
        ):
            (topic,) = (await peer.ask(api, 12 if api == "Metadata" else 0, fields))["topics"]
            rows = [(row["leader_id"], row["leader_epoch"], row["replica_nodes"]) for row in topic["partitions"]]
            assert rows == [(NODE_ID, 0, [NODE_ID]), (2, EPOCH, [2])]
        cluster = await peer.ask("DescribeCluster", 2)
        assert [row["broker_id"] for row in cluster["brokers"]] == [NODE_ID, 2]
        assert cluster["brokers"][1]["rack"] == ELSEWHERE.rack
        services = (await peer.ask("ServiceMap", 0, {"topics": ["events"]}))["services"]
        assert [(row["node_id"], row["host"]) for row in services if row["kind"] == "kafka"][1] == (2, ELSEWHERE.host)
        backups = await peer.ask("BackupMap", 0)
        ends = [(row["leader_id"], row["end_offset"]) for row in backups["topics"][0]["partitions"]]
        assert backups["note"] is None
        assert ends == [(NODE_ID, 0), (2, -1)]
        dirs = await peer.ask("DescribeLogDirs", 1, {"topics": None})
        (shown,) = dirs["results"][0]["topics"]
        assert [row["partition_index"] for row in shown["partitions"]] == [0]

    serve(tmp_path, story)


def test_the_coordinator_is_the_leader_of_the_groups_partition(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.groups.ensure()
        topic = broker.cluster.image.topic(TOPIC)
        assert topic is not None
        broker.cluster.publish(broker.cluster.image.broker_registered(ELSEWHERE))
        moved = placed(topic.topic_id, partition_of("g", topic.partitions), 2, epoch=1, change=1)
        broker.cluster.publish(broker.cluster.image.placements_changed([moved]))
        peer = await broker.peer()
        groups = [next(name for name in map(str, range(99)) if not is_with(name, topic.partitions)), "g"]
        answer = await peer.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": groups})
        assert [row["node_id"] for row in answer["coordinators"]] == [NODE_ID, 2]
        assert answer["coordinators"][1]["host"] == ELSEWHERE.host

    serve(tmp_path, story)


def is_with(group_id: str, partitions: int) -> bool:
    return partition_of(group_id, partitions) == partition_of("g", partitions)


def test_elections_and_reassignments_use_the_cluster_image(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = add_topic_elsewhere(broker.cluster, "events", 2)
        row = placed(topic.topic_id, 1, 2, epoch=5, change=1, replicas=(1, 2))
        broker.cluster.publish(broker.cluster.image.placements_changed([row]))
        peer = await broker.peer()
        wanted = {"election_type": 0, "topic_partitions": [{"topic": "events", "partitions": [0, 1, 2]}]}
        elected = await peer.ask("ElectLeaders", 2, wanted)
        assert [each["error_code"] for each in elected["replica_election_results"][0]["partition_result"]] == [
            ErrorCode.ELECTION_NOT_NEEDED.number,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE.number,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number,
        ]
        rows = [{"partition_index": number, "replicas": nodes} for number, nodes in ((0, [2]), (1, [1, 2]), (1, [2]))]
        assigned = await peer.ask(
            "AlterPartitionReassignments", 0, {"topics": [{"name": "events", "partitions": rows}]}
        )
        assert [each["error_code"] for each in assigned["responses"][0]["partitions"]] == [
            0,
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT.number,
        ]

    serve(tmp_path, story)


def test_creating_a_topic_is_refused_when_another_broker_leads_one_of_that_name(tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        topic = add_topic_elsewhere(broker.cluster, "events")
        peer = await broker.peer()
        wanted = {"topics": [{"name": "events", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1_000}
        (made,) = (await peer.ask("CreateTopics", 7, wanted))["topics"]
        assert made["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS.number
        shown = await peer.ask("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "events"}]})
        assert shown["results"][0]["error_code"] == 0
        by_id = await produce(peer, topic.topic_id, version=13)
        assert (by_id.error, (await produce(peer, TopicId(UUID(int=5)), version=13)).error) == (
            MOVED,
            ErrorCode.UNKNOWN_TOPIC_ID.number,
        )

    serve(tmp_path, story)


class DenyAll:
    """An authorizer that grants nothing."""

    def allows(self, principal: Principal, right: Right, resource: str, cluster: str = "") -> bool:
        return False

    def allows_any(self, principal: Principal, right: Right, cluster: str = "") -> bool:
        return False


def test_a_denied_request_does_not_learn_where_a_partition_is() -> None:
    cluster = a_cluster()
    topic = add_topic_elsewhere(cluster, "events", 3)
    denied = Access(DenyAll(), Principal(), Right.MESSAGES_WRITE)
    for ref in ("events", "unknown", topic.topic_id):
        with pytest.raises(MillstreamError) as error:
            find_placement(cluster.image, ref, 0, denied)
        assert error.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(MillstreamError) as error:
        partition_by_hash(cluster.image, "events", 7, denied)
    assert error.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert partition_by_hash(cluster.image, "events", 7, FULL_ACCESS) == 1
