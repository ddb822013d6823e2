"""Heartbeat: keeps a member in its classic group and reports whether it must join again."""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later
from millstream.groups.commands import Heartbeat
from millstream.groups.responses import EmptyResponse
from millstream.wire.messages import read_request, write_response

API = "Heartbeat"


class HeartbeatHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        command = Heartbeat(
            fields["group_id"], fields["generation_id"], fields["member_id"], fields["group_instance_id"]
        )
        return answer_later(
            self._groups,
            command,
            EmptyResponse,
            lambda done: write_response(API, version, {"error_code": done.error.number}),
            request.access,
        )
