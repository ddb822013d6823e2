"""FindCoordinator: who looks after a group or a transactional id. Alone, that is this broker."""

from typing import Any

from penstock.broker.capabilities import Identity
from penstock.broker.request import Request
from penstock.model.errors import ErrorCode
from penstock.wire.messages import read_request, write_response

API = "FindCoordinator"
_MANY_FROM = 4
_GROUP, _TRANSACTION = 0, 1


class FindCoordinatorHandler:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def __call__(self, request: Request) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        answer = self._coordinator(fields["key_type"])
        if request.version >= _MANY_FROM:
            answer = {"coordinators": [{"key": key, **answer} for key in fields["coordinator_keys"]]}
        return write_response(API, request.version, answer)

    def _coordinator(self, key_type: int) -> dict[str, Any]:
        if key_type not in (_GROUP, _TRANSACTION):
            return {
                "error_code": ErrorCode.INVALID_REQUEST.number,
                "error_message": f"there are no coordinators of kind {key_type} here",
                "node_id": -1,
                "host": "",
                "port": -1,
            }
        me = self._identity
        return {"node_id": me.node_id, "host": me.host, "port": me.port}
