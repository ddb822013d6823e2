"""Encodes the requests about groups, members and committed offsets, and decodes the responses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.admin.group_results import (
    CLASSIC,
    CONSUMER,
    NOBODY,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    MemberRef,
)
from millstream.sdk.responses import Broker, refusal
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.frame_reader import FrameReader
from millstream.wire.messages import read_response, write_request

FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 4)
LIST_GROUPS = Api(16, "ListGroups", 0, 5)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 6)
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", 0, 1)
CONSUMER_GROUP_HEARTBEAT = Api(68, "ConsumerGroupHeartbeat", 1, 1)
WATCH_MEMBER = Api(1018, "WatchMember", 0, 0)
# The last versions with topic names, as for Produce and Fetch.
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 9)
OFFSET_COMMIT_BY_ID = Api(8, "OffsetCommit", 2, 10)
OFFSET_FETCH = Api(9, "OffsetFetch", 2, 9)
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0)
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2)

_GROUP = 0
_DEAD = "Dead"

PartitionResults = dict[TopicPartition, MillstreamError | None]


def _request(api: Api, fields: dict[str, Any], decode: Any) -> ApiRequest[Any]:
    return ApiRequest(
        api,
        lambda version: [write_request(api.name, version, fields)],
        lambda version, frame, start: decode(read_response(api.name, version, frame, start)),
    )


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, keeping their order."""
    rows: dict[str, list[int]] = {}
    for where in places:
        rows.setdefault(where.topic, []).append(where.partition)
    return rows


def find_coordinator(group_id: str) -> ApiRequest[Broker]:
    """Request the coordinator of this group."""
    fields = {"key": group_id, "key_type": _GROUP, "coordinator_keys": [group_id]}

    def decode(answer: dict[str, Any]) -> Broker | MillstreamError:
        row = answer["coordinators"][0] if answer["coordinators"] else answer
        if row["error_code"]:
            return refusal(row["error_code"], f"the coordinator of group {group_id!r}", row["error_message"])
        return Broker(row["node_id"], row["host"], row["port"])

    return _request(FIND_COORDINATOR, fields, decode)


def list_groups(states: Sequence[str] = (), kinds: Sequence[str] = ()) -> ApiRequest[list[GroupListing]]:
    """Request the groups that one broker coordinates, optionally only these states and kinds."""

    def decode(answer: dict[str, Any]) -> list[GroupListing] | MillstreamError:
        if answer["error_code"]:
            return refusal(answer["error_code"], "listing groups")
        return [
            GroupListing(row["group_id"], row["group_type"], row["protocol_type"], row["group_state"])
            for row in answer["groups"]
        ]

    return _request(LIST_GROUPS, {"states_filter": list(states), "types_filter": list(kinds)}, decode)


def describe_classic_group(group_id: str) -> ApiRequest[GroupDescription]:
    """Request a group of the classic protocol. An unknown group is GROUP_ID_NOT_FOUND, also from old brokers.

    Old brokers answer with the state Dead instead.
    """

    def decode(answer: dict[str, Any]) -> GroupDescription | MillstreamError:
        (row,) = answer["groups"]
        number = row["error_code"]
        if not number and row["group_state"] == _DEAD:
            number = ErrorCode.GROUP_ID_NOT_FOUND.number
        if number:
            return refusal(number, f"group {group_id!r}", row["error_message"])
        members = tuple(map(_classic_member, row["members"]))
        return GroupDescription(
            group_id, CLASSIC, row["group_state"], row["protocol_type"], row["protocol_data"], -1, members
        )

    return _request(DESCRIBE_GROUPS, {"groups": [group_id]}, decode)


def _classic_member(row: dict[str, Any]) -> GroupMember:
    partitions = decode_assignment(row["member_assignment"])
    topics = tuple(sorted({where.topic for where in partitions}))
    return GroupMember(
        row["member_id"], row["group_instance_id"], row["client_id"], row["client_host"], -1, topics, partitions
    )


def decode_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """Decode an assignment of the classic consumer protocol; returns no partitions if it is something else."""
    source = FrameReader(memoryview(data), 0, elements_max=len(data))
    try:
        source.int16()
        found = []
        for _ in range(source.count(False, 6)):
            topic = source.string(False) or ""
            found += [TopicPartition(topic, source.int32()) for _ in range(source.count(False, 4))]
    except (ValueError, MillstreamError):
        return ()  # Groups that are not consumer groups use their own format here.
    return tuple(sorted(found))


def describe_consumer_group(group_id: str) -> ApiRequest[GroupDescription]:
    """Request a group of the consumer protocol; GROUP_ID_NOT_FOUND for other groups."""

    def decode(answer: dict[str, Any]) -> GroupDescription | MillstreamError:
        (row,) = answer["groups"]
        if row["error_code"]:
            return refusal(row["error_code"], f"group {group_id!r}", row["error_message"])
        members = tuple(map(_member, row["members"]))
        return GroupDescription(
            group_id, CONSUMER, row["group_state"], CONSUMER, row["assignor_name"], row["group_epoch"], members
        )

    return _request(CONSUMER_GROUP_DESCRIBE, {"group_ids": [group_id]}, decode)


def _member(row: dict[str, Any]) -> GroupMember:
    owned = [
        TopicPartition(topic["topic_name"], partition)
        for topic in row["assignment"]["topic_partitions"]
        for partition in topic["partitions"]
    ]
    topics = tuple(row["subscribed_topic_names"])
    if row["subscribed_topic_regex"]:
        topics += (f"/{row['subscribed_topic_regex']}/",)
    return GroupMember(
        row["member_id"],
        row["instance_id"],
        row["client_id"],
        row["client_host"],
        row["member_epoch"],
        topics,
        tuple(sorted(owned)),
    )


def fetch_offsets(
    group_id: str, places: Iterable[TopicPartition] | None = None, member: MemberRef = NOBODY
) -> ApiRequest[dict[TopicPartition, CommittedOffset]]:
    """Request the committed offsets for these partitions, or all. Partitions without one are left out."""
    rows = None
    if places is not None:
        rows = [{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(places).items()]
    group = {"group_id": group_id, "member_id": member.member_id or None, "member_epoch": member.epoch, "topics": rows}
    fields = {"group_id": group_id, "topics": rows, "groups": [group], "require_stable": True}

    def decode(answer: dict[str, Any]) -> dict[TopicPartition, CommittedOffset] | MillstreamError:
        body = answer["groups"][0] if answer["groups"] else answer
        if body["error_code"]:
            return refusal(body["error_code"], f"the offsets of group {group_id!r}")
        found = {}
        for topic in body["topics"]:
            for row in topic["partitions"]:
                where = TopicPartition(topic["name"], row["partition_index"])
                if row["error_code"]:
                    return refusal(row["error_code"], f"the offset of group {group_id!r} in {where}")
                if row["committed_offset"] >= 0:
                    epoch = row["committed_leader_epoch"]
                    found[where] = CommittedOffset(row["committed_offset"], epoch, row["metadata"] or "")
        return found

    return _request(OFFSET_FETCH, fields, decode)


def commit_offsets(
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    member: MemberRef = NOBODY,
    topic_ids: Mapping[str, UUID] | None = None,
) -> ApiRequest[PartitionResults]:
    """Commit offsets; the response has a result for each partition.

    With the ids of all topics, and if the broker supports ids, the commit applies to exactly these topics. It does not
    apply to a topic that was created later under the same name.
    """
    ids = topic_ids or {}
    names = {topic_id: name for name, topic_id in ids.items()}
    topics = []
    for name, numbers in by_topic(offsets).items():
        rows = []
        for number in numbers:
            chosen = offsets[TopicPartition(name, number)]
            rows.append(
                {
                    "partition_index": number,
                    "committed_offset": chosen.offset,
                    "committed_leader_epoch": chosen.leader_epoch,
                    "committed_metadata": chosen.metadata,
                }
            )
        topics.append({"name": name, "topic_id": ids.get(name, NO_TOPIC_ID), "partitions": rows})
    fields = {
        "group_id": group_id,
        "generation_id_or_member_epoch": member.epoch,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "topics": topics,
    }

    def decode(answer: dict[str, Any]) -> PartitionResults:
        for topic in answer["topics"]:
            topic["name"] = topic["name"] or names.get(topic["topic_id"], "")
        return _partition_results(answer["topics"], f"committing for group {group_id!r} in")

    has_ids = all(topic["topic_id"] != NO_TOPIC_ID for topic in topics)
    return _request(OFFSET_COMMIT_BY_ID if has_ids else OFFSET_COMMIT, fields, decode)


def delete_offsets(group_id: str, places: Iterable[TopicPartition]) -> ApiRequest[PartitionResults]:
    """Delete committed offsets; the broker refuses it for topics that members read."""
    topics = [
        {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
        for name, numbers in by_topic(places).items()
    ]

    def decode(answer: dict[str, Any]) -> PartitionResults | MillstreamError:
        if answer["error_code"]:
            return refusal(answer["error_code"], f"deleting offsets of group {group_id!r}")
        return _partition_results(answer["topics"], f"deleting the offset of group {group_id!r} in")

    return _request(OFFSET_DELETE, {"group_id": group_id, "topics": topics}, decode)


def _partition_results(topics: Iterable[dict[str, Any]], concerns: str) -> PartitionResults:
    return {
        (where := TopicPartition(topic["name"], row["partition_index"])): (
            refusal(row["error_code"], f"{concerns} {where}") if row["error_code"] else None
        )
        for topic in topics
        for row in topic["partitions"]
    }


def delete_group(group_id: str) -> ApiRequest[None]:
    """Delete a group with its committed offsets; NON_EMPTY_GROUP while it has members."""

    def decode(answer: dict[str, Any]) -> MillstreamError | None:
        (row,) = answer["results"]
        return refusal(row["error_code"], f"deleting group {group_id!r}") if row["error_code"] else None

    return _request(DELETE_GROUPS, {"groups_names": [group_id]}, decode)


def heartbeat(beat: HeartbeatRequest) -> ApiRequest[HeartbeatResponse]:
    """Send a heartbeat of the consumer protocol, with which a member also joins and leaves."""
    owned = None
    if beat.owned is not None:
        rows: dict[Any, list[int]] = {}
        for topic_id, partition in beat.owned:
            rows.setdefault(topic_id, []).append(partition)
        owned = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in rows.items()]
    fields = {
        "group_id": beat.group_id,
        "member_id": beat.member_id,
        "member_epoch": beat.epoch,
        "instance_id": beat.instance_id,
        "rebalance_timeout_ms": beat.rebalance_timeout_ms,
        "subscribed_topic_names": None if beat.topics is None else list(beat.topics),
        "subscribed_topic_regex": beat.topic_regex,
        "server_assignor": beat.assignor,
        "topic_partitions": owned,
    }

    def decode(answer: dict[str, Any]) -> HeartbeatResponse | MillstreamError:
        if answer["error_code"]:
            text = answer["error_message"]
            return refusal(answer["error_code"], f"member {beat.member_id} of group {beat.group_id!r}", text)
        assigned = None
        if answer["assignment"] is not None:
            topics = answer["assignment"]["topic_partitions"]
            assigned = frozenset((row["topic_id"], number) for row in topics for number in row["partitions"])
        return HeartbeatResponse(answer["member_epoch"], answer["heartbeat_interval_ms"], assigned)

    return _request(CONSUMER_GROUP_HEARTBEAT, fields, decode)


def watch_member(group_id: str, member_id: str) -> ApiRequest[None]:
    """Build the WatchMember request.

    After the response, the broker sends one more frame when the member's next heartbeat will change its partitions.
    """

    def decode(version: int, frame: memoryview, start: int) -> MillstreamError | None:
        answer = read_response(WATCH_MEMBER.name, version, frame, start)
        if answer["error_code"]:
            return refusal(answer["error_code"], f"watching {member_id} of group {group_id!r}", answer["error_message"])
        return None

    body = {"group_id": group_id, "member_id": member_id}
    return ApiRequest(
        WATCH_MEMBER, lambda version: [write_request(WATCH_MEMBER.name, version, body)], decode, stands=True
    )
