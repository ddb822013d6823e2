"""JoinGroup: adds a member to a classic group and answers when the group's members have joined."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, client_host
from millstream.groups.commands import JoinGroup, OfferedProtocol
from millstream.groups.responses import JoinResponse
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "JoinGroup"
_REBALANCE_TIMEOUT_FROM = 1
_MEMBER_ID_REQUIRED_FROM = 4
_NO_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


class JoinGroupHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        return answer_later(
            self._groups, _command(request, fields), JoinResponse, partial(_encode, version), request.access
        )


def _command(request: BrokerRequest, fields: Fields) -> JoinGroup:
    version, session_timeout_ms = request.version, fields["session_timeout_ms"]
    knows_rebalance_timeout = version >= _REBALANCE_TIMEOUT_FROM
    return JoinGroup(
        group_id=fields["group_id"],
        member_id=fields["member_id"],
        instance_id=fields["group_instance_id"],
        client_id=request.client_id,
        client_host=client_host(request),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=fields["rebalance_timeout_ms"] if knows_rebalance_timeout else session_timeout_ms,
        protocol_type=fields["protocol_type"],
        protocols=tuple(OfferedProtocol(each["name"], bytes(each["metadata"])) for each in fields["protocols"]),
        knows_member_id_required=version >= _MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )


def _encode(version: int, joined: JoinResponse) -> bytes:
    protocol_name = joined.protocol_name
    if protocol_name is None and version < _NO_PROTOCOL_FROM:
        protocol_name = ""
    return write_response(
        API,
        version,
        {
            "error_code": joined.error.number,
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": protocol_name,
            "leader": joined.leader,
            "skip_assignment": joined.skip_assignment,
            "member_id": joined.member_id,
            "members": [
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
                for each in joined.members
            ],
        },
    )
