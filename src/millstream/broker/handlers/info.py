"""Info, a Millstream API: describes this broker and the client versions it works with.

A broker works with SDKs up to two minor versions older or newer than itself. For other clients the response has an
error that names both versions. Its other fields are still set, so that the client can report the broker's version.
"""

from collections.abc import Mapping

from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.model.versions import WINDOW, minor_version, work_together
from millstream.seams.clock import Clock
from millstream.wire.messages import read_request, write_response

API = "Info"


class InfoHandler:
    def __init__(self, cluster: ClusterNode, clock: Clock, version: str, features: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._version = version
        self._features = [{"name": name, "value": value} for name, value in sorted(features.items())]

    def __call__(self, request: BrokerRequest) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        major, minor = minor_version(self._version) or (0, 0)
        oldest, newest = f"{major}.{max(0, minor - WINDOW)}", f"{major}.{minor + WINDOW}"
        answer = {
            "broker_version": self._version,
            "client_version_min": oldest,
            "client_version_max": newest,
            "server_time_ms": self._clock.wall_ms(),
            "cluster_id": self._cluster.image.cluster_id,
            "node_id": self._cluster.node_id,
            "features": self._features,
        }
        client = fields["client_version"]
        if client is not None and not work_together(client, self._version):
            answer["error_code"] = ErrorCode.VERSION_WINDOW.number
            answer["error_message"] = (
                f"the client has version {client[:40]}, the broker {self._version}; it works with {oldest} to {newest}"
            )
        return write_response(API, request.version, answer)
