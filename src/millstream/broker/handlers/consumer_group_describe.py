"""ConsumerGroupDescribe: describes groups with the consumer protocol (KIP-848) and their members.

A group with a topic that the principal may not see is refused as a whole, with TOPIC_AUTHORIZATION_FAILED.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from millstream.broker.dispatch.authorized_operations import group_operations
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.groups.commands import DescribeConsumerGroup
from millstream.groups.responses import AssignedTopic, ConsumerGroupDescription, DescribedConsumer
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

API = "ConsumerGroupDescribe"
_CLASSIC, _CONSUMER = 0, 1


class ConsumerGroupDescribeHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        with_operations = fields["include_authorized_operations"]
        # Duplicates are dropped: they would let a small request cause a response of any size.
        group_ids = dict.fromkeys(fields["group_ids"])
        write = response_element_writer(API, version, "groups")
        out = bytearray()
        for group_id in group_ids:
            described = await self._described(group_id, access)
            row = {"group_id": group_id, **_row(described)}
            if described.error is ErrorCode.NONE and with_operations:
                row["authorized_operations"] = group_operations(access, group_id)
            write(out, row)
        return write_response(API, version, {"groups": EncodedArray(len(group_ids), out)})

    async def _described(self, group_id: str, access: Access) -> ConsumerGroupDescription:
        if not group_id:
            return ConsumerGroupDescription(ErrorCode.INVALID_GROUP_ID)
        group = await answer_to(self._groups, DescribeConsumerGroup(group_id), ConsumerGroupDescription, access)
        if access.is_limited and not all(access.allows_topic(topic) for topic in _topics(group)):
            return ConsumerGroupDescription(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return group


def _topics(group: ConsumerGroupDescription) -> set[str]:
    """Return the topics that the members subscribe to or have assigned."""
    topics = {topic for member in group.members for topic in member.subscribed_topics}
    return topics | {each.topic for member in group.members for each in (*member.assignment, *member.target)}


def _row(group: ConsumerGroupDescription) -> dict[str, Any]:
    if group.error is not ErrorCode.NONE:
        return {"error_code": group.error.number, "error_message": group.detail or group.error.meaning}
    return {
        "group_state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(each) for each in group.members],
    }


def _member(member: DescribedConsumer) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topics,
        "subscribed_topic_regex": member.subscribed_regex,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target),
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def _assignment(topics: Sequence[AssignedTopic]) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": UUID(bytes=each.topic_id), "topic_name": each.topic, "partitions": each.partitions}
            for each in topics
        ]
    }
