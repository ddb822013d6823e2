"""ConsumerGroupHeartbeat: joins, keeps, changes or ends a membership in the consumer protocol (KIP-848).

A regular expression subscribes a member to every topic with a matching name. The response leaves out topics that the
member's principal may not use.
"""

from functools import partial
from uuid import UUID

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, client_host
from millstream.groups.commands import ConsumerHeartbeat, OwnedPartitions
from millstream.groups.responses import ConsumerHeartbeatResponse
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
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
        try:
            request.access.check_group(fields["group_id"])
            for topic in fields["subscribed_topic_names"] or ():
                request.access.check_topic(topic)
        except MillstreamError as error:
            return _encode(version, ConsumerHeartbeatResponse(error.code, error.detail), access=request.access)
        command = _command(request, fields)
        encode = partial(_encode, version, access=request.access)
        return answer_later(self._groups, command, ConsumerHeartbeatResponse, encode, request.access)


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


def _encode(version: int, answer: ConsumerHeartbeatResponse, *, access: Access) -> bytes:
    assignment = None
    if answer.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": UUID(bytes=each.topic_id), "partitions": each.partitions}
                for each in answer.assignment
                if access.allows_topic(each.topic)
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
