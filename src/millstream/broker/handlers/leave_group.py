"""LeaveGroup: removes members from a classic group, one up to version 2, several from version 3 on."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.groups.commands import LeaveGroup, LeavingMember
from millstream.groups.responses import LeaveResponse
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "LeaveGroup"
_MANY_FROM = 3


class LeaveGroupHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        if version >= _MANY_FROM:
            members = tuple(LeavingMember(each["member_id"], each["group_instance_id"]) for each in fields["members"])
        else:
            members = (LeavingMember(fields["member_id"], None),)
        command = LeaveGroup(fields["group_id"], members)
        return answer_later(self._groups, command, LeaveResponse, partial(_encode, version), request.access)


def _encode(version: int, left: LeaveResponse) -> bytes:
    error = left.error
    if version < _MANY_FROM and error is ErrorCode.NONE:
        # The response has no field for the error of a member.
        error = next((member.error for member in left.members), error)
    rows = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": each.error.number}
        for each in left.members
    ]
    return write_response(API, version, {"error_code": error.number, "members": rows})
