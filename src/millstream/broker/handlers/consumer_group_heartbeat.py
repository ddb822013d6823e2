"""ConsumerGroupHeartbeat: join, stay, change the subscription and leave, in the new group protocol."""

from uuid import UUID

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, client_host
from millstream.groups.commands import ConsumerHeartbeat, OwnedPartitions
from millstream.groups.responses import ConsumerHeartbeatResponse
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ConsumerGroupHeartbeat"
_OWN_MEMBER_ID_FROM = 1


class ConsumerGroupHeartbeatHandler:
    def __init__(self, groups: GroupCoordination) -> None:
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        command = _command(request, fields)
        return answer_later(self._groups, command, ConsumerHeartbeatResponse, lambda answer: _encode(version, answer))


def _command(request: BrokerRequest, fields: Fields) -> ConsumerHeartbeat:
    topics, owned = fields["subscribed_topic_names"], fields["topic_partitions"]
    return ConsumerHeartbeat(
        group_id=fields["group_id"],
        member_id=fields["member_id"],
        member_epoch=fields["member_epoch"],
        instance_id=fields["instance_id"],
        rack_id=fields["rack_id"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        subscribed_topics=None if topics is None else tuple(topics),
        subscribed_regex=fields["subscribed_topic_regex"],
        server_assignor=fields["server_assignor"],
        owned=None
        if owned is None
        else tuple(OwnedPartitions(each["topic_id"].bytes, tuple(each["partitions"])) for each in owned),
        client_id=request.client_id,
        client_host=client_host(request),
        makes_member_id=request.version < _OWN_MEMBER_ID_FROM,
    )


def _encode(version: int, answer: ConsumerHeartbeatResponse) -> bytes:
    assignment = None
    if answer.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": UUID(bytes=each.topic_id), "partitions": each.partitions} for each in answer.assignment
            ]
        }
    return write_response(
        API,
        version,
        {
            "error_code": answer.error.number,
            "error_message": (answer.detail or answer.error.meaning) if answer.error is not ErrorCode.NONE else None,
            "member_id": answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval_ms": answer.heartbeat_interval_ms,
            "assignment": assignment,
        },
    )
