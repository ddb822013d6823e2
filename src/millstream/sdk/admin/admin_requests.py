"""Encodes the administrative requests (settings, partitions, sizes, cluster, queries), and decodes the responses."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import MillstreamError
from millstream.model.names import TopicPartition
from millstream.model.setting_values import SettingValue, plain_settings
from millstream.sdk.admin.admin_results import (
    SOURCES,
    TYPES,
    ClusterDescription,
    ConfigSetting,
    LogDirectory,
    QueryResult,
    ResourceKind,
    TopicCursor,
    TopicRows,
)
from millstream.sdk.requests import CONSUMER, topic_view
from millstream.sdk.responses import refusal
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.messages import read_response, write_request

DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 2, 4)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4)
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 1, 4)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 1)
DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", 0, 0)
QUERY = Api(1001, "Query", 0, 0)

TO_THE_END = -1
"""The offset of `delete_records` that deletes all messages."""

_OWN_SOURCE = {ResourceKind.TOPIC: 1, ResourceKind.BROKER: 2, ResourceKind.GROUP: 8}
_ALL_BROKERS_SOURCE = 3
_SET, _DELETE = 0, 1


def _request(api: Api, fields: dict[str, Any], decode: Any) -> ApiRequest[Any]:
    return ApiRequest(
        api,
        lambda version: [write_request(api.name, version, fields)],
        lambda version, frame, start: decode(read_response(api.name, version, frame, start)),
        wait_s=fields.get("timeout_ms", 0) / 1000,
    )


def describe_settings(kind: ResourceKind, name: str, names: Sequence[str] | None) -> ApiRequest[list[ConfigSetting]]:
    """Request these settings, or all (None), with their documentation if the broker has it."""
    resource = {
        "resource_type": kind.value,
        "resource_name": name,
        "configuration_keys": None if names is None else list(names),
    }
    fields = {"resources": [resource], "include_documentation": True}
    # A request without a broker number returns cluster-wide settings, which then count as the resource's own.
    own = _ALL_BROKERS_SOURCE if kind is ResourceKind.BROKER and not name else _OWN_SOURCE[kind]

    def decode(answer: dict[str, Any]) -> list[ConfigSetting] | MillstreamError:
        (row,) = answer["results"]
        if row["error_code"]:
            return refusal(row["error_code"], f"settings of {_named(kind, name)}", row["error_message"])
        return sorted(_setting(each, own) for each in row["configs"])

    return _request(DESCRIBE_CONFIGS, fields, decode)


def _setting(row: dict[str, Any], own: int) -> ConfigSetting:
    number = row["config_source"]
    return ConfigSetting(
        name=row["name"],
        value=row["value"],
        type=TYPES.get(row["config_type"], "unknown"),
        source=SOURCES.get(number, "unknown"),
        is_own=number == own,
        is_read_only=row["read_only"],
        is_secret=row["is_sensitive"],
        documentation=row["documentation"] or "",
    )


def alter_settings(
    kind: ResourceKind, name: str, chosen: Mapping[str, SettingValue], unset: Sequence[str], *, validate_only: bool
) -> ApiRequest[None]:
    """Set and unset settings, all or none."""
    settings = plain_settings(chosen)
    configs = [{"name": key, "config_operation": _SET, "value": value} for key, value in settings.items()]
    configs += [{"name": key, "config_operation": _DELETE, "value": None} for key in unset]
    resource = {"resource_type": kind.value, "resource_name": name, "configs": configs}

    def decode(answer: dict[str, Any]) -> MillstreamError | None:
        (row,) = answer["responses"]
        if row["error_code"]:
            return refusal(row["error_code"], f"settings of {_named(kind, name)}", row["error_message"])
        return None

    return _request(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": validate_only}, decode)


def _named(kind: ResourceKind, name: str) -> str:
    if kind is ResourceKind.BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{kind.name.lower()} {name!r}"


def create_partitions(topic: str, total: int, *, timeout_ms: int, validate_only: bool) -> ApiRequest[None]:
    """Increase the number of partitions of the topic to `total`."""
    row = {"name": topic, "count": total, "assignments": None}
    fields = {"topics": [row], "timeout_ms": timeout_ms, "validate_only": validate_only}

    def decode(answer: dict[str, Any]) -> MillstreamError | None:
        (result,) = answer["results"]
        if result["error_code"]:
            return refusal(result["error_code"], f"partitions of topic {topic!r}", result["error_message"])
        return None

    return _request(CREATE_PARTITIONS, fields, decode)


def delete_records(
    places: Mapping[TopicPartition, int], timeout_ms: int
) -> ApiRequest[dict[TopicPartition, int | MillstreamError]]:
    """Delete messages before these offsets. The response has the new log start offsets.

    All partitions must have the same leader.
    """
    rows: dict[str, list[dict[str, int]]] = {}
    for where, offset in places.items():
        rows.setdefault(where.topic, []).append({"partition_index": where.partition, "offset": offset})
    topics = [{"name": name, "partitions": parts} for name, parts in rows.items()]

    def decode(answer: dict[str, Any]) -> dict[TopicPartition, int | MillstreamError]:
        found: dict[TopicPartition, int | MillstreamError] = {}
        for topic in answer["topics"]:
            for part in topic["partitions"]:
                where = TopicPartition(topic["name"], part["partition_index"])
                found[where] = part["low_watermark"]
                if part["error_code"]:
                    found[where] = refusal(part["error_code"], f"deleting messages of {where}")
        if found.keys() != places.keys():
            raise ValueError("the response names other partitions than the request")
        return found

    return _request(DELETE_RECORDS, {"topics": topics, "timeout_ms": timeout_ms}, decode)


def epoch_ends(epochs: Mapping[TopicPartition, int]) -> ApiRequest[dict[TopicPartition, int | MillstreamError]]:
    """Request the end offsets of these leader epochs (-1: unknown). All partitions must have the same leader."""
    rows: dict[str, list[dict[str, int]]] = {}
    for where, epoch in epochs.items():
        row = {"partition": where.partition, "current_leader_epoch": -1, "leader_epoch": epoch}
        rows.setdefault(where.topic, []).append(row)
    topics = [{"topic": name, "partitions": parts} for name, parts in rows.items()]

    def decode(answer: dict[str, Any]) -> dict[TopicPartition, int | MillstreamError]:
        found: dict[TopicPartition, int | MillstreamError] = {}
        for topic in answer["topics"]:
            for part in topic["partitions"]:
                where = TopicPartition(topic["topic"], part["partition"])
                found[where] = part["end_offset"]
                if part["error_code"]:
                    found[where] = refusal(part["error_code"], f"epochs of {where}")
        if found.keys() != epochs.keys():
            raise ValueError("the response names other partitions than the request")
        return found

    return _request(OFFSET_FOR_LEADER_EPOCH, {"replica_id": CONSUMER, "topics": topics}, decode)


def describe_log_dirs(node_id: int, places: Mapping[str, Sequence[int]] | None) -> ApiRequest[list[LogDirectory]]:
    """Request the data directories of one broker, with the sizes of these partitions, or of all (None)."""
    rows = None
    if places is not None:
        rows = [{"topic": name, "partitions": list(numbers)} for name, numbers in places.items()]

    def decode(answer: dict[str, Any]) -> list[LogDirectory] | MillstreamError:
        if answer["error_code"]:
            return refusal(answer["error_code"], f"data directories of broker {node_id}")
        found = []
        for row in answer["results"]:
            if row["error_code"]:
                return refusal(row["error_code"], f"data directory {row['log_dir']} of broker {node_id}")
            sizes = {
                TopicPartition(topic["name"], part["partition_index"]): part["partition_size"]
                for topic in row["topics"]
                for part in topic["partitions"]
                if not part["is_future_key"]
            }
            found.append(LogDirectory(node_id, row["log_dir"], row["total_bytes"], row["usable_bytes"], sizes))
        return found

    return _request(DESCRIBE_LOG_DIRS, {"topics": rows}, decode)


def describe_cluster() -> ApiRequest[ClusterDescription]:
    def decode(answer: dict[str, Any]) -> ClusterDescription | MillstreamError:
        if answer["error_code"]:
            return refusal(answer["error_code"], "describing the cluster", answer["error_message"])
        rows = sorted(answer["brokers"], key=lambda row: row["broker_id"])
        brokers = tuple(BrokerEndpoint(row["broker_id"], row["host"], row["port"], row["rack"]) for row in rows)
        return ClusterDescription(answer["cluster_id"], answer["controller_id"], brokers)

    return _request(DESCRIBE_CLUSTER, {}, decode)


def describe_topic_partitions(cursor: TopicCursor | None, partitions_max: int) -> ApiRequest[TopicRows]:
    """Request topics sorted by name, from the cursor on, with at most `partitions_max` partitions."""
    begin = None if cursor is None else {"topic_name": cursor.topic, "partition_index": cursor.partition}
    fields = {"topics": [], "response_partition_limit": partitions_max, "cursor": begin}

    def decode(answer: dict[str, Any]) -> TopicRows:
        following = answer["next_cursor"]
        return TopicRows(
            tuple(topic_view(row) for row in answer["topics"] if row["name"] is not None),
            None if following is None else TopicCursor(following["topic_name"], following["partition_index"]),
        )

    return _request(DESCRIBE_TOPIC_PARTITIONS, fields, decode)


def query(sql: str, *, rows_max: int, timeout_ms: int) -> ApiRequest[QueryResult]:
    """Run one read-only SQL statement on the catalog's tables."""

    def decode(answer: dict[str, Any]) -> QueryResult | MillstreamError:
        if answer["error_code"]:
            return MillstreamError.from_number(answer["error_code"], answer["error_message"] or "")
        rows = tuple(tuple(json.loads(bytes(row))) for row in answer["rows"])
        return QueryResult(tuple(answer["columns"]), rows, answer["truncated"])

    return _request(QUERY, {"sql": sql, "rows_max": rows_max, "timeout_ms": timeout_ms}, decode)
