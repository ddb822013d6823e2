"""Compares the codec with kio, which shares neither code nor author with kafka-python."""

import importlib
import io
import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, note
from kio.schema.api_versions.v3 import response as api_versions_3
from kio.schema.consumer_group_describe.v0 import response as described_0
from kio.schema.consumer_group_describe.v1 import request as described_request_1
from kio.schema.consumer_group_describe.v1 import response as described_1
from kio.schema.consumer_group_heartbeat.v0 import request as beat_request_0
from kio.schema.consumer_group_heartbeat.v1 import request as beat_request_1
from kio.schema.consumer_group_heartbeat.v1 import response as beat_response_1
from kio.schema.create_topics.v7 import request as create_topics_7
from kio.schema.list_offsets.v1 import request as list_offsets_1
from kio.schema.metadata.v12 import response as metadata_12
from kio.serial import entity_reader, entity_writer

from builders.wire_messages import Message, kafka_rows, messages, some, structs
from millstream.broker.dispatch.dispatch_table import ApiRow
from millstream.wire.messages import read_request, read_response, write_request, write_response
from millstream.wire.schema import SchemaField


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_object(kind: Any, data: bytes) -> Any:
    value, end = entity_reader(kind)(data, 0)
    assert end == len(data)
    return value


ROWS = kafka_rows()


def kio_class(message: Message) -> Any:
    api = re.sub("(?<!^)(?=[A-Z])", "_", message.api).lower()
    module = importlib.import_module(f"kio.schema.{api}.v{message.version}.{message.direction.lower()}")
    return getattr(module, message.name)


def has_few_integers(field: SchemaField) -> bool:
    """True for a field that kio reads as an error, a duration or a time, which have fewer values than integers."""
    return field.name.endswith(("error_code", "_ms", "timestamp"))


METADATA = {
    "throttle_time_ms": 0,
    "brokers": [{"node_id": 1, "host": "b", "port": 9092, "rack": None}],
    "cluster_id": "c",
    "controller_id": 1,
    "topics": [
        {
            "error_code": 0,
            "name": "t",
            "topic_id": UUID(int=77),
            "is_internal": False,
            "partitions": [
                {
                    "error_code": 0,
                    "partition_index": 0,
                    "leader_id": 1,
                    "leader_epoch": 3,
                    "replica_nodes": [1],
                    "isr_nodes": [1],
                    "offline_replicas": [],
                }
            ],
            "topic_authorized_operations": -(2**31),
        }
    ],
}
API_VERSIONS = {
    "error_code": 0,
    "api_keys": [{"api_key": 1000, "min_version": 0, "max_version": 0}],
    "throttle_time_ms": 0,
    "supported_features": [{"name": "f", "min_version": 1, "max_version": 2}],
    "finalized_features_epoch": 7,
}
CREATE_TOPICS = {
    "topics": [
        {
            "name": "t",
            "num_partitions": 3,
            "replication_factor": 1,
            "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
            "configs": [{"name": "retention.ms", "value": None}],
        }
    ],
    "timeout_ms": 1000,
    "validate_only": True,
}
LIST_OFFSETS = {
    "replica_id": -1,
    "topics": [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": -2}]}],
}
ASSIGNMENT = {"topic_partitions": [{"topic_id": UUID(int=5), "partitions": [0, 2]}]}
NAMED_ASSIGNMENT = {"topic_partitions": [{"topic_id": UUID(int=5), "topic_name": "t", "partitions": [0, 2]}]}
GROUP_HEARTBEAT = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": -2,
    "instance_id": "i",
    "rack_id": None,
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": "t.*",
    "server_assignor": "uniform",
    "topic_partitions": ASSIGNMENT["topic_partitions"],
}
GROUP_HEARTBEAT_ANSWER = {
    "throttle_time_ms": 1,
    "error_code": 0,
    "error_message": None,
    "member_id": "m",
    "member_epoch": 3,
    "heartbeat_interval_ms": 5000,
    "assignment": ASSIGNMENT,
}
GROUP_DESCRIPTION = {
    "throttle_time_ms": 0,
    "groups": [
        {
            "error_code": 0,
            "error_message": None,
            "group_id": "g",
            "group_state": "Stable",
            "group_epoch": 3,
            "assignment_epoch": 2,
            "assignor_name": "range",
            "members": [
                {
                    "member_id": "m",
                    "instance_id": None,
                    "rack_id": "r",
                    "member_epoch": 3,
                    "client_id": "c",
                    "client_host": "/h",
                    "subscribed_topic_names": ["t"],
                    "subscribed_topic_regex": None,
                    "assignment": NAMED_ASSIGNMENT,
                    "target_assignment": NAMED_ASSIGNMENT,
                    "member_type": 1,
                }
            ],
            "authorized_operations": -(2**31),
        }
    ],
}


@pytest.mark.parametrize(
    ("kind", "is_request", "api", "version", "fields"),
    [
        (metadata_12.MetadataResponse, False, "Metadata", 12, METADATA),
        (api_versions_3.ApiVersionsResponse, False, "ApiVersions", 3, API_VERSIONS),
        (create_topics_7.CreateTopicsRequest, True, "CreateTopics", 7, CREATE_TOPICS),
        (list_offsets_1.ListOffsetsRequest, True, "ListOffsets", 1, LIST_OFFSETS),
        (beat_request_0.ConsumerGroupHeartbeatRequest, True, "ConsumerGroupHeartbeat", 0, GROUP_HEARTBEAT),
        (beat_request_1.ConsumerGroupHeartbeatRequest, True, "ConsumerGroupHeartbeat", 1, GROUP_HEARTBEAT),
        (beat_response_1.ConsumerGroupHeartbeatResponse, False, "ConsumerGroupHeartbeat", 1, GROUP_HEARTBEAT_ANSWER),
        (
            beat_response_1.ConsumerGroupHeartbeatResponse,
            False,
            "ConsumerGroupHeartbeat",
            1,
            GROUP_HEARTBEAT_ANSWER | {"assignment": None, "error_code": 25, "error_message": "who?"},
        ),
        (described_request_1.ConsumerGroupDescribeRequest, True, "ConsumerGroupDescribe", 1, {"group_ids": ["g", ""]}),
        (described_0.ConsumerGroupDescribeResponse, False, "ConsumerGroupDescribe", 0, GROUP_DESCRIPTION),
        (described_1.ConsumerGroupDescribeResponse, False, "ConsumerGroupDescribe", 1, GROUP_DESCRIPTION),
    ],
)
def test_kio_reads_what_we_write_and_writes_the_same_bytes(
    kind: Any, is_request: bool, api: str, version: int, fields: dict[str, Any]
) -> None:
    data = (write_request if is_request else write_response)(api, version, fields)
    assert kio_bytes(kio_object(kind, data)) == data
    read = (read_request if is_request else read_response)(api, version, memoryview(data), 0)
    assert (write_request if is_request else write_response)(api, version, read) == data


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_kio_reads_any_message_and_writes_the_same_bytes(row: ApiRow) -> None:
    def check(message: Message) -> None:
        kind = kio_class(message)

        @some(5)
        @given(structs(message.schema.fields, message.version, is_small=has_few_integers))
        def check_one(values: dict[str, Any]) -> None:
            note(str(message))
            data = message.write(values)
            assert kio_bytes(kio_object(kind, data)) == data
            assert message.write(message.read(data)) == data

        check_one()

    for message in messages(row):
        check(message)
