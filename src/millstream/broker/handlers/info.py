"""INFO, the first of Millstream's own keys: what this broker is and which clients it works with.

A broker works with SDKs up to two minor versions older or newer than itself. Outside of that window the answer carries
an error that names both versions; the rest of it is filled in all the same, so that a client can say what it met.
"""

from collections.abc import Mapping

from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.request import BrokerRequest
from millstream.model.errors import ErrorCode
from millstream.model.versions import WINDOW, minor_version, work_together
from millstream.seams.clock import Clock
from millstream.wire.messages import read_request, write_response

API = "Info"


class InfoHandler:
    def __init__(self, identity: BrokerIdentity, clock: Clock, version: str, features: Mapping[str, str]) -> None:
        self._identity = identity
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
            "cluster_id": self._identity.cluster_id,
            "node_id": self._identity.node_id,
            "features": self._features,
        }
        client = fields["client_version"]
        if client is not None and not work_together(client, self._version):
            answer["error_code"] = ErrorCode.VERSION_WINDOW.number
            answer["error_message"] = (
                f"the client has version {client[:40]}, the broker {self._version}; it works with {oldest} to {newest}"
            )
        return write_response(API, request.version, answer)
