"""FindCoordinator: names the broker that coordinates a group or a transactional id.

The coordinator of a group is the leader of the group's partition of the internal topic. The coordinator of a
transactional id is this broker. A client asks before it uses a group, so the handler creates the internal topic if
necessary, as Kafka does.
"""

from typing import Any

from millstream.broker.dispatch.capabilities import ClusterNode
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination
from millstream.coordination.key_hash import partition_of
from millstream.groups.runtime.coordinator import TOPIC
from millstream.model.authorization import Access
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId
from millstream.wire.messages import read_request, write_response

API = "FindCoordinator"
_MANY_FROM = 4
_GROUP, _TRANSACTION = 0, 1
_DENIED = MillstreamError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


class FindCoordinatorHandler:
    def __init__(self, cluster: ClusterNode, groups: GroupCoordination) -> None:
        self._cluster = cluster
        self._groups = groups

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        keys = fields["coordinator_keys"] if request.version >= _MANY_FROM else [fields["key"]]
        return Work(self._answer(request.version, kind=fields["key_type"], keys=keys, access=request.access))

    async def _answer(self, version: int, *, kind: int, keys: list[str], access: Access) -> bytes:
        denied = {key for key in keys if kind == _GROUP and not access.allows_group(key)}
        problem = None if denied and denied.issuperset(keys) else await self._problem(kind)
        rows = [{"key": key, **self._coordinator(kind, key, _DENIED if key in denied else problem)} for key in keys]
        if version >= _MANY_FROM:
            return write_response(API, version, {"coordinators": rows})
        del rows[0]["key"]
        return write_response(API, version, rows[0])

    async def _problem(self, kind: int) -> MillstreamError | None:
        """Return the error that applies to every key, if there is one."""
        if kind not in (_GROUP, _TRANSACTION):
            return MillstreamError(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {kind}; use 0 or 1")
        if kind == _GROUP:
            try:
                await self._groups.ensure()
            except MillstreamError as error:
                return MillstreamError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
        return None

    def _coordinator(self, kind: int, key: str, problem: MillstreamError | None) -> dict[str, Any]:
        try:
            if problem is not None:
                raise problem
            broker = self._group_coordinator(key) if kind == _GROUP else self._reachable(self._cluster.node_id)
        except MillstreamError as error:
            return {
                "error_code": error.code.number,
                "error_message": error.detail,
                "node_id": -1,
                "host": "",
                "port": -1,
            }
        return {"node_id": broker.node_id, "host": broker.host, "port": broker.port}

    def _group_coordinator(self, group_id: str) -> BrokerEndpoint:
        if not group_id:
            raise MillstreamError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        topic = self._cluster.image.topic(TOPIC)
        if topic is None:
            raise MillstreamError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {TOPIC} does not exist yet; retry")
        return self._reachable(topic.placements[partition_of(group_id, topic.partitions)].leader)

    def _reachable(self, node_id: BrokerId) -> BrokerEndpoint:
        broker = self._cluster.image.brokers.get(node_id)
        if broker is None:
            raise MillstreamError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node_id} is not registered")
        return broker
