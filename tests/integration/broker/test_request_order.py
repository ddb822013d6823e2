"""Sends a change and a read of what it changes in one write to a real broker: the read finds the change, as in Kafka.

Pipelining clients rely on this order. Each pair is sent several times, since a wrong order could depend on timing.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from builders.batches import batch, numbered_batch
from builders.requests import request_frame
from interop.wire import ask, converse
from millstream.model.names import NO_TOPIC_ID
from millstream.testing.real_broker import RealBroker
from millstream.wire.schema_readers import Fields

TIMES = 10
RECORDS = 5
EARLIEST, LATEST = -2, -1
TOPIC, GROUP = 2, 32
_SET = 0

Request = tuple[str, int, Fields]


class Pair(NamedTuple):
    """The requests of one write, and the value that the last response must contain."""

    requests: Callable[[str], list[Request]]
    found: Callable[[dict[str, Any]], Any]
    expected: Any
    has_topic: bool = True


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("order") / "data") as running:
        yield running


def produce(topic: str, *, acks: int = -1) -> Request:
    data = {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch())}]}
    return "Produce", 9, {"acks": acks, "timeout_ms": 30_000, "topic_data": [data]}


def puts(topic: str, *, acks: int = -1) -> Request:
    entry = {"partition": -1, "hash": 7, "records": bytes(batch())}
    return "Puts", 0, {"acks": acks, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": [entry]}]}


def fetch(topic: str, *, offset: int = RECORDS) -> Request:
    want = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, "session_epoch": -1}
    return "Fetch", 12, {**limits, "topics": [{"topic": topic, "partitions": [want]}]}


def list_offsets(topic: str, timestamp: int) -> Request:
    partition = {"partition_index": 0, "timestamp": timestamp}
    return "ListOffsets", 7, {"topics": [{"name": topic, "partitions": [partition]}]}


def epoch_end(topic: str) -> Request:
    partition = {"partition": 0, "leader_epoch": 0}
    return "OffsetForLeaderEpoch", 4, {"topics": [{"topic": topic, "partitions": [partition]}]}


def delete_records(topic: str, before: int) -> Request:
    partition = {"partition_index": 0, "offset": before}
    return "DeleteRecords", 2, {"timeout_ms": 30_000, "topics": [{"name": topic, "partitions": [partition]}]}


def incremental(topic: str) -> Request:
    config = {"name": "retention.ms", "config_operation": _SET, "value": "12345"}
    return "IncrementalAlterConfigs", 1, {"resources": [_resource(topic, configs=[config])]}


def replacing(topic: str) -> Request:
    return "AlterConfigs", 2, {"resources": [_resource(topic, configs=[{"name": "retention.ms", "value": "12345"}])]}


def describe_configs(topic: str) -> Request:
    return "DescribeConfigs", 4, {"resources": [_resource(topic, configuration_keys=["retention.ms"])]}


def alter_group(topic: str) -> Request:
    config = {"name": "consumer.session.timeout.ms", "config_operation": _SET, "value": "50000"}
    return "IncrementalAlterConfigs", 1, {"resources": [_resource(topic, GROUP, configs=[config])]}


def describe_group_configs(topic: str) -> Request:
    wanted = _resource(topic, GROUP, configuration_keys=["consumer.session.timeout.ms"])
    return "DescribeConfigs", 4, {"resources": [wanted]}


def _resource(topic: str, kind: int = TOPIC, **more: Any) -> Fields:
    return {"resource_type": kind, "resource_name": topic, **more}


def create(topic: str) -> Request:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    return "CreateTopics", 7, {"timeout_ms": 30_000, "topics": [wanted]}


def grow(topic: str) -> Request:
    return "CreatePartitions", 3, {"timeout_ms": 30_000, "topics": [{"name": topic, "count": 3, "assignments": None}]}


def delete(topic: str) -> Request:
    wanted = {"name": topic, "topic_id": NO_TOPIC_ID}
    return "DeleteTopics", 6, {"timeout_ms": 30_000, "topics": [wanted]}


def metadata(topic: str, *, creates: bool = False) -> Request:
    return "Metadata", 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": creates}


def commit(topic: str, *, offset: int = 3) -> Request:
    partition = {"partition_index": 0, "committed_offset": offset}
    member = {"generation_id_or_member_epoch": -1, "member_id": ""}
    return "OffsetCommit", 8, {"group_id": topic, **member, "topics": [{"name": topic, "partitions": [partition]}]}


def delete_offset(topic: str) -> Request:
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    return "OffsetDelete", 0, {"group_id": topic, "topics": topics}


def delete_groups(topic: str) -> Request:
    return "DeleteGroups", 2, {"groups_names": [topic]}


def committed(topic: str) -> Request:
    topics = [{"name": topic, "partition_indexes": [0]}]
    return "OffsetFetch", 8, {"groups": [{"group_id": topic, "topics": topics}]}


def describe_group(topic: str) -> Request:
    return "DescribeGroups", 5, {"groups": [topic]}


def offset_of(answer: Any) -> Any:
    return answer["topics"][0]["partitions"][0]["offset"]


def end_offset_of(answer: Any) -> Any:
    return answer["topics"][0]["partitions"][0]["end_offset"]


def high_watermark_of(answer: Any) -> Any:
    return answer["responses"][0]["partitions"][0]["high_watermark"]


def low_watermark_of(answer: Any) -> Any:
    return answer["topics"][0]["partitions"][0]["low_watermark"]


def value_of(answer: Any) -> Any:
    return answer["results"][0]["configs"][0]["value"]


def topic_error_of(answer: Any) -> Any:
    return answer["topics"][0]["error_code"]


def partition_count_of(answer: Any) -> Any:
    return len(answer["topics"][0]["partitions"])


def committed_offset_of(answer: Any) -> Any:
    return answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]


def state_of(answer: Any) -> Any:
    return answer["groups"][0]["group_state"]


def produce_error_of(answer: Any) -> Any:
    return answer["responses"][0]["partition_responses"][0]["error_code"]


UNKNOWN_TOPIC = 3
AFTER = RECORDS + 1
PAIRS = {
    "produce, latest offset": Pair(lambda t: [produce(t), list_offsets(t, LATEST)], offset_of, AFTER),
    "puts, latest offset": Pair(lambda t: [puts(t), list_offsets(t, LATEST)], offset_of, AFTER),
    "produce, fetch": Pair(lambda t: [produce(t), fetch(t)], high_watermark_of, AFTER),
    "puts, fetch": Pair(lambda t: [puts(t), fetch(t)], high_watermark_of, AFTER),
    "produce without acks, latest offset": Pair(
        lambda t: [produce(t, acks=0), list_offsets(t, LATEST)], offset_of, AFTER
    ),
    "produce without acks, fetch": Pair(lambda t: [produce(t, acks=0), fetch(t)], high_watermark_of, AFTER),
    "puts without acks, fetch": Pair(lambda t: [puts(t, acks=0), fetch(t)], high_watermark_of, AFTER),
    "produce with acks=1, latest offset": Pair(
        lambda t: [produce(t, acks=1), list_offsets(t, LATEST)], offset_of, AFTER
    ),
    "produce, epoch end": Pair(lambda t: [produce(t), epoch_end(t)], end_offset_of, AFTER),
    "two produces, latest offset": Pair(
        lambda t: [produce(t), produce(t), list_offsets(t, LATEST)], offset_of, RECORDS + 2
    ),
    "produce, delete all records": Pair(lambda t: [produce(t), delete_records(t, -1)], low_watermark_of, AFTER),
    "delete records, earliest offset": Pair(lambda t: [delete_records(t, 3), list_offsets(t, EARLIEST)], offset_of, 3),
    "delete all records, produce, earliest offset": Pair(
        lambda t: [delete_records(t, -1), produce(t), list_offsets(t, EARLIEST)], offset_of, RECORDS
    ),
    "alter a config, describe": Pair(lambda t: [incremental(t), describe_configs(t)], value_of, "12345"),
    "replace all configs, describe": Pair(lambda t: [replacing(t), describe_configs(t)], value_of, "12345"),
    "alter a group's config, describe": Pair(lambda t: [alter_group(t), describe_group_configs(t)], value_of, "50000"),
    "create a topic, metadata": Pair(lambda t: [create(t), metadata(t)], topic_error_of, 0, has_topic=False),
    "create a topic, produce": Pair(lambda t: [create(t), produce(t)], produce_error_of, 0, has_topic=False),
    "create by metadata, produce": Pair(
        lambda t: [metadata(t, creates=True), produce(t)], produce_error_of, 0, has_topic=False
    ),
    "delete a topic, metadata": Pair(lambda t: [delete(t), metadata(t)], topic_error_of, UNKNOWN_TOPIC),
    "produce, delete the topic, metadata": Pair(
        lambda t: [produce(t), delete(t), metadata(t)], topic_error_of, UNKNOWN_TOPIC
    ),
    "create partitions, metadata": Pair(lambda t: [grow(t), metadata(t)], partition_count_of, 3),
    "commit, fetch the offset": Pair(lambda t: [commit(t), committed(t)], committed_offset_of, 3),
    "commit, describe the group": Pair(lambda t: [commit(t), describe_group(t)], state_of, "Empty"),
    "commit twice, fetch the offset": Pair(
        lambda t: [commit(t), commit(t, offset=4), committed(t)], committed_offset_of, 4
    ),
    "delete an offset, fetch it": Pair(lambda t: [commit(t), delete_offset(t), committed(t)], committed_offset_of, -1),
    "delete a group, fetch its offset": Pair(
        lambda t: [commit(t), delete_groups(t), committed(t)], committed_offset_of, -1
    ),
    "delete a group, commit, fetch the offset": Pair(
        lambda t: [commit(t), delete_groups(t), commit(t, offset=2), committed(t)], committed_offset_of, 2
    ),
    "delete a group, describe it": Pair(lambda t: [commit(t), delete_groups(t), describe_group(t)], state_of, "Dead"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_request_finds_the_earlier_changes_of_its_connection(name: str, broker: RealBroker) -> None:
    pair = PAIRS[name]
    found = []
    for number in range(TIMES):
        topic = f"{re.sub(r'[^a-z]+', '-', name)}-{number}"
        if pair.has_topic:
            ask("127.0.0.1", broker.port, *create(topic))
            ask("127.0.0.1", broker.port, *_with_records(topic))
        requests = pair.requests(topic)
        content = b"".join(request_frame(*request) for request in requests)
        answered = [(api, version) for api, version, fields in requests if fields.get("acks") != 0]
        *_, last = converse("127.0.0.1", broker.port, content, *answered)
        found.append(pair.found(last))
    assert found == [pair.expected] * TIMES


def _with_records(topic: str) -> Request:
    api, version, fields = produce(topic)
    fields["topic_data"][0]["partition_data"][0]["records"] = bytes(numbered_batch(RECORDS))
    return api, version, fields
