"""SyncGroup: the leader of a classic group sends the assignments, and every member receives its own."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.groups.commands import AssignedBytes, SyncGroup
from millstream.groups.responses import SyncResponse
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "SyncGroup"
_PROTOCOL_FROM = 5


class SyncGroupHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        command = SyncGroup(
            group_id=fields["group_id"],
            generation=fields["generation_id"],
            member_id=fields["member_id"],
            instance_id=fields["group_instance_id"],
            protocol_type=fields["protocol_type"],
            protocol_name=fields["protocol_name"],
            assignments=tuple(
                AssignedBytes(each["member_id"], bytes(each["assignment"])) for each in fields["assignments"]
            ),
        )
        if version >= _PROTOCOL_FROM and (command.protocol_type is None or command.protocol_name is None):
            return _encode(version, SyncResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return answer_later(self._groups, command, SyncResponse, partial(_encode, version), request.access)


def _encode(version: int, synced: SyncResponse) -> bytes:
    return write_response(
        API,
        version,
        {
            "error_code": synced.error.number,
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol_name,
            "assignment": synced.assignment,
        },
    )
