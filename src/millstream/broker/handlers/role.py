"""Role, a Millstream API: declares the role of the connection: producer or consumer.

`millstream.broker.dispatch.roles` refuses the APIs of the other role.
"""

from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.roles import PRODUCER_GROUP_MAX, Role
from millstream.wire.messages import read_request, write_response

API = "Role"
_ROLES = {role.value: role for role in Role}


class RoleHandler:
    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        try:
            role, producer_group = _declared(fields["role"], fields["producer_group"])
            if role is Role.PRODUCER and request.push_channel.open_requests:
                raise MillstreamError(
                    ErrorCode.ROLE_IS_FINAL,
                    "this connection has subscriptions or watches, so it cannot become a producer",
                )
            request.peer.declare(role, producer_group)
        except MillstreamError as error:
            answer = {"error_code": error.code.number, "error_message": error.detail}
            return write_response(API, request.version, answer)
        return write_response(API, request.version, {})


def _declared(number: int, producer_group: str | None) -> tuple[Role, str | None]:
    role = _ROLES.get(number)
    problem = None
    if role is None:
        problem = f"unknown role {number}; use 1 (producer) or 2 (consumer)"
    elif producer_group is not None and role is not Role.PRODUCER:
        problem = "producer_group is set, but the role is not producer"
    elif producer_group is not None and not 0 < len(producer_group) <= PRODUCER_GROUP_MAX:
        problem = f"producer_group has {len(producer_group)} characters; it must have 1 to {PRODUCER_GROUP_MAX}"
    if role is None or problem is not None:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, problem or "")
    return role, producer_group
