"""DescribeCluster: lists the brokers of the cluster and names the controller."""

from typing import Any

from millstream.broker.dispatch.authorized_operations import cluster_operations
from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response

API = "DescribeCluster"
_BROKERS, _CONTROLLERS = 1, 2


class DescribeClusterHandler:
    def __init__(self, cluster: ImageSource) -> None:
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        kind = fields["endpoint_type"] if request.version >= 1 else _BROKERS
        if kind != _BROKERS:
            return write_response(API, request.version, _refused(kind))
        image = self._cluster.image
        answer: dict[str, Any] = {
            "endpoint_type": _BROKERS,
            "cluster_id": image.cluster_id,
            "controller_id": image.controller_id,
            "brokers": [
                {"broker_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
                for broker in image.brokers.values()
            ],
        }
        if fields["include_cluster_authorized_operations"]:
            answer["cluster_authorized_operations"] = cluster_operations(request.access)
        return write_response(API, request.version, answer)


def _refused(kind: int) -> dict[str, Any]:
    if kind == _CONTROLLERS:
        error, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener, not a controller's"
    else:
        error, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {kind}"
    return {"error_code": error.number, "error_message": text}
