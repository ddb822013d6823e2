"""ElectLeaders: reports for each partition whether it needs an election.

The broker never holds one, since the only replica of a partition is its leader.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import ImageSource, find_placement
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ElectLeaders"
_PREFERRED, _UNCLEAN = 0, 1
_KIND_FROM = 1


class ElectLeadersHandler:
    def __init__(self, cluster: ImageSource) -> None:
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        kind = fields["election_type"] if version >= _KIND_FROM else _PREFERRED
        refused = None
        if kind not in (_PREFERRED, _UNCLEAN):
            refused = MillstreamError(ErrorCode.INVALID_REQUEST, f"unknown election type {kind}; use 0 or 1")
        # Null selects all partitions that need an election. There are none.
        wanted = fields["topic_partitions"] or ()
        groups = self._groups(wanted, refused, access)
        rows = await encode_groups(API, version, ("replica_election_results",), "partition_result", groups)
        error = refused.code.number if refused else ErrorCode.NONE.number
        return write_response(API, version, {"error_code": error, "replica_election_results": rows})

    def _groups(self, wanted: Sequence[Fields], refused: MillstreamError | None, access: Access) -> Iterator[Group]:
        for topic in wanted:
            name = topic["topic"]
            yield {"topic": name}, (self._row(name, number, refused, access) for number in topic["partitions"])

    def _row(self, topic: str, number: int, refused: MillstreamError | None, access: Access) -> dict[str, Any]:
        error = refused or self._outcome(topic, number, access)
        return {"partition_id": number, "error_code": error.code.number, "error_message": error.detail}

    def _outcome(self, topic: str, number: int, access: Access) -> MillstreamError:
        image = self._cluster.image
        try:
            placement = find_placement(image, topic, number, access)
        except MillstreamError as problem:
            return problem
        if placement.leader not in image.brokers:
            return MillstreamError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other replica can lead the partition")
        if placement.leader != placement.replicas[0]:
            text = f"broker {placement.replicas[0]}, the preferred leader, cannot take over yet"
            return MillstreamError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
        return MillstreamError(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {placement.leader}, the preferred leader, is the leader"
        )
