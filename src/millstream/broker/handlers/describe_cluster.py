"""DescribeCluster: the brokers there are, and who is the controller. Alone, that is this broker."""

from typing import Any

from millstream.broker.dispatch.authorized_operations import CLUSTER_OPERATIONS
from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "DescribeCluster"
_BROKERS, _CONTROLLERS = 1, 2


class DescribeClusterHandler:
    def __init__(self, identity: BrokerIdentity) -> None:
        self._identity = identity

    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        kind = fields["endpoint_type"] if request.version >= 1 else _BROKERS
        if kind != _BROKERS:
            return write_response(API, request.version, _refused(kind))
        me = self._identity
        answer: dict[str, Any] = {
            "endpoint_type": _BROKERS,
            "cluster_id": me.cluster_id,
            "controller_id": me.node_id,
            "brokers": [{"broker_id": me.node_id, "host": me.host, "port": me.port}],
        }
        if fields["include_cluster_authorized_operations"]:
            answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
        return write_response(API, request.version, answer)


def _refused(kind: int) -> dict[str, Any]:
    if kind == _CONTROLLERS:
        error, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener, not a controller's"
    else:
        error, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {kind}"
    return {"error_code": error.number, "error_message": text}
