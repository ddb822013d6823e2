"""ConsumerGroupDescribe: groups of the new protocol and their members."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from millstream.broker.dispatch.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.groups.commands import DescribeConsumerGroup
from millstream.groups.responses import AssignedTopic, ConsumerGroupDescription, DescribedConsumer
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
        return Work(self._answer(request.version, fields))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        operations = GROUP_OPERATIONS if fields["include_authorized_operations"] else NOT_ASKED
        # Whoever names a group often gets it once: the answer would otherwise be as large as they like.
        group_ids = dict.fromkeys(fields["group_ids"])
        write = response_element_writer(API, version, "groups")
        out = bytearray()
        for group_id in group_ids:
            described = await self._described(group_id)
            row = {"group_id": group_id, **_row(described)}
            if described.error is ErrorCode.NONE:
                row["authorized_operations"] = operations
            write(out, row)
        return write_response(API, version, {"groups": EncodedArray(len(group_ids), out)})

    async def _described(self, group_id: str) -> ConsumerGroupDescription:
        if not group_id:
            return ConsumerGroupDescription(ErrorCode.INVALID_GROUP_ID)
        return await answer_to(self._groups, DescribeConsumerGroup(group_id), ConsumerGroupDescription)


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
