"""DescribeGroups: describes classic groups and their members.

A group that does not exist, or is not classic, is reported as Dead up to version 5. From version 6 on it is an error.
"""

from typing import Any

from millstream.broker.dispatch.authorized_operations import NOT_REQUESTED, group_operations
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination, answer_to
from millstream.groups.commands import DescribeGroup
from millstream.groups.responses import GroupDescription
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, response_element_writer, write_response
from millstream.wire.schema_readers import Fields
from millstream.wire.schema_writers import EncodedArray

API = "DescribeGroups"
_NOT_FOUND_FROM = 6


class DescribeGroupsHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        # Duplicates are dropped: they would let a small request cause a response of any size.
        group_ids = dict.fromkeys(fields["groups"])
        write = response_element_writer(API, version, "groups")
        out = bytearray()
        for group_id in group_ids:
            described = await answer_to(self._groups, DescribeGroup(group_id), GroupDescription, access)
            operations = (
                group_operations(access, group_id) if fields["include_authorized_operations"] else NOT_REQUESTED
            )
            write(out, {"group_id": group_id, "authorized_operations": operations, **_row(version, described)})
        return write_response(API, version, {"groups": EncodedArray(len(group_ids), out)})


def _row(version: int, group: GroupDescription) -> dict[str, Any]:
    error, state = group.error, group.state
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        state = "Dead"
        error = error if version >= _NOT_FOUND_FROM else ErrorCode.NONE
    elif error is not ErrorCode.NONE:
        state = ""
    return {
        "error_code": error.number,
        "error_message": (group.detail or error.meaning) if error is not ErrorCode.NONE else None,
        "group_state": state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata,
                "member_assignment": each.assignment,
            }
            for each in group.members
        ],
    }
