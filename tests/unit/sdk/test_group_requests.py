"""Tests group requests and responses in every version, against the encoding of kafka-python."""

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse

from builders.loops import for_each
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.group_results import CommittedOffset, MemberRef
from millstream.sdk.responses import Broker
from millstream.wire.client_connection import ApiRequest
from millstream.wire.messages import write_response

WHERE = TopicPartition("orders", 3)


def decoded(request: ApiRequest[Any], response: Any, version: int) -> Any:
    response.API_VERSION = version
    return request.decode(version, memoryview(response.encode(header=False)), 0)


def parsed_by_kafka_python(request: ApiRequest[Any], kind: Any, version: int) -> Any:
    return kind.decode(b"".join(request.encode(version)), version=version, header=False)


@for_each("version", range(5))
def test_find_coordinator_responses_are_decoded_in_all_versions(version: int) -> None:
    row = {"node_id": 4, "host": "far", "port": 9092, "error_code": 0}
    response = (
        FindCoordinatorResponse(**row)
        if version < 4
        else FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(key="g", **row)])
    )
    assert decoded(group_requests.find_coordinator("g"), response, version) == Broker(4, "far", 9092)


@for_each("version", range(2, 10))
def test_offset_fetch_is_encoded_and_decoded_in_all_versions(version: int) -> None:
    request = group_requests.fetch_offsets("g", [WHERE, TopicPartition("orders", 4)], MemberRef("m", 5))
    parsed = parsed_by_kafka_python(request, OffsetFetchRequest, version)
    group = parsed if version < 8 else parsed.groups[0]
    assert (group.group_id, group.topics[0].name, group.topics[0].partition_indexes) == ("g", "orders", [3, 4])
    if version == 9:
        assert (group.member_id, group.member_epoch) == ("m", 5)
    rows = [(3, 17), (4, -1)]
    answer = OffsetFetchResponse
    if version < 8:
        topic = answer.OffsetFetchResponseTopic
        parts = [_committed(topic.OffsetFetchResponsePartition, *row) for row in rows]
        response = answer(topics=[topic(name="orders", partitions=parts)])
    else:
        kind = answer.OffsetFetchResponseGroup
        parts = [_committed(kind.OffsetFetchResponseTopics.OffsetFetchResponsePartitions, *row) for row in rows]
        topics = [kind.OffsetFetchResponseTopics(name="orders", partitions=parts)]
        response = answer(groups=[kind(group_id="g", topics=topics)])
    found = decoded(request, response, version)
    assert found == {WHERE: CommittedOffset(17, -1, "note")}


def _committed(kind: Any, partition: int, offset: int) -> Any:
    return kind(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, metadata="note", error_code=0
    )


@for_each("version", range(2, 10))
def test_offset_commit_requests_are_encoded_in_all_versions(version: int) -> None:
    request = group_requests.commit_offsets("g", {WHERE: CommittedOffset(17, 2, "note")}, MemberRef("m", 5, "i"))
    parsed = parsed_by_kafka_python(request, OffsetCommitRequest, version)
    row = parsed.topics[0].partitions[0]
    assert (parsed.group_id, parsed.member_id, parsed.generation_id_or_member_epoch) == ("g", "m", 5)
    assert (row.partition_index, row.committed_offset, row.committed_metadata) == (3, 17, "note")
    if version >= 7:
        assert parsed.group_instance_id == "i"


@pytest.mark.parametrize(("version", "error"), [(0, 0), (5, 0), (6, 69)])
def test_a_dead_group_is_reported_as_group_id_not_found(version: int, error: int) -> None:
    row = {"group_id": "g", "group_state": "Dead", "error_code": error}
    data = write_response("DescribeGroups", version, {"groups": [row]})
    refused = group_requests.describe_classic_group("g").decode(version, memoryview(data), 0)
    assert isinstance(refused, MillstreamError)
    assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND


ASSIGNMENT = bytes.fromhex(
    "0001"  # version
    "00000002"  # two topics
    "0001" "62" "00000001" "00000000"  # b, partition 0
    "0001" "61" "00000002" "00000002" "00000001"  # a, partitions 2 and 1
    "ffffffff"  # no user data
)  # fmt: skip


def test_a_classic_consumer_assignment_is_decoded() -> None:
    expected = (TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))
    assert group_requests.decode_assignment(ASSIGNMENT) == expected


@pytest.mark.parametrize("size", range(len(ASSIGNMENT) - 4))
def test_a_truncated_classic_assignment_has_no_partitions(size: int) -> None:
    assert group_requests.decode_assignment(ASSIGNMENT[:size]) == ()
