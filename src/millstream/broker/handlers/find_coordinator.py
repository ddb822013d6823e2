"""FindCoordinator: who looks after a group or a transactional id. Alone, that is this broker.

Whoever looks for a group's coordinator is about to use it: so the internal topic is made here, as Kafka does.
"""

from typing import Any

from millstream.broker.dispatch.capabilities import BrokerIdentity
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response

API = "FindCoordinator"
_MANY_FROM = 4
_GROUP, _TRANSACTION = 0, 1


class FindCoordinatorHandler:
    def __init__(self, identity: BrokerIdentity, groups: GroupCoordination) -> None:
        self._identity = identity
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        keys = fields["coordinator_keys"] if request.version >= _MANY_FROM else [fields["key"]]
        return Work(self._answer(request.version, fields["key_type"], keys))

    async def _answer(self, version: int, kind: int, keys: list[str]) -> bytes:
        problem = await self._problem(kind)
        rows = [{"key": key, **self._coordinator(kind, key, problem)} for key in keys]
        if version >= _MANY_FROM:
            return write_response(API, version, {"coordinators": rows})
        del rows[0]["key"]
        return write_response(API, version, rows[0])

    async def _problem(self, kind: int) -> MillstreamError | None:
        """What keeps everybody from being served."""
        if kind not in (_GROUP, _TRANSACTION):
            return MillstreamError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of kind {kind} here")
        if kind == _GROUP:
            try:
                await self._groups.ensure()
            except MillstreamError as error:
                return MillstreamError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
        return None

    def _coordinator(self, kind: int, key: str, problem: MillstreamError | None) -> dict[str, Any]:
        if problem is None and kind == _GROUP and not key:
            problem = MillstreamError(ErrorCode.INVALID_GROUP_ID, "the name of a group may not be empty")
        if problem is not None:
            return {
                "error_code": problem.code.number,
                "error_message": problem.detail,
                "node_id": -1,
                "host": "",
                "port": -1,
            }
        me = self._identity
        return {"node_id": me.node_id, "host": me.host, "port": me.port}
