"""IteratorJoin, IteratorHeartbeat and IteratorLeave: manage the membership of an iterator client in its group."""

from functools import partial

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, client_host
from millstream.broker.signed_iterators import error_fields
from millstream.groups.commands import IteratorHeartbeat, IteratorJoin, IteratorLeave
from millstream.groups.responses import IteratorClientResponse
from millstream.wire.messages import read_request, write_response

JOIN, HEARTBEAT, LEAVE = "IteratorJoin", "IteratorHeartbeat", "IteratorLeave"


class IteratorJoinHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(JOIN, request.version, request.frame, request.body)
        command = IteratorJoin(fields["group_id"], fields["client_id"], request.client_id, client_host(request))
        return answer_later(
            self._groups, command, IteratorClientResponse, partial(_encode, JOIN, request.version), request.access
        )


class IteratorHeartbeatHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(HEARTBEAT, request.version, request.frame, request.body)
        command = IteratorHeartbeat(fields["group_id"], fields["client_id"])
        return answer_later(
            self._groups, command, IteratorClientResponse, partial(_encode, HEARTBEAT, request.version), request.access
        )


class IteratorLeaveHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(LEAVE, request.version, request.frame, request.body)
        command = IteratorLeave(fields["group_id"], fields["client_id"])
        return answer_later(
            self._groups,
            command,
            IteratorClientResponse,
            lambda answer: write_response(LEAVE, request.version, error_fields(answer.error, answer.detail)),
            request.access,
        )


def _encode(api: str, version: int, answer: IteratorClientResponse) -> bytes:
    return write_response(
        api,
        version,
        {
            **error_fields(answer.error, answer.detail),
            "generation": answer.generation,
            "settled": answer.is_settled,
            "heartbeat_interval_ms": answer.heartbeat_interval_ms,
            "session_timeout_ms": answer.session_timeout_ms,
            "assignment": [
                {"topic": each.topic, "partitions": each.partitions} for each in answer.assignment if each.topic
            ],
        },
    )
