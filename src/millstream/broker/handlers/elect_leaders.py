"""ElectLeaders: with one copy of a partition its leader is the one it should have, so no election is ever needed."""

from collections.abc import Iterator, Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ElectLeaders"
_PREFERRED, _UNCLEAN = 0, 1
_KIND_FROM = 1


class ElectLeadersHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        kind = fields["election_type"] if version >= _KIND_FROM else _PREFERRED
        refused = None
        if kind not in (_PREFERRED, _UNCLEAN):
            refused = MillstreamError(ErrorCode.INVALID_REQUEST, f"there are no elections of type {kind}")
        # All partitions (null) are asked for those that do need an election: none.
        wanted = fields["topic_partitions"] or ()
        groups = self._groups(wanted, refused)
        rows = await encode_groups(API, version, ("replica_election_results",), "partition_result", groups)
        error = refused.code.number if refused else ErrorCode.NONE.number
        return write_response(API, version, {"error_code": error, "replica_election_results": rows})

    def _groups(self, wanted: Sequence[Fields], refused: MillstreamError | None) -> Iterator[Group]:
        for topic in wanted:
            name = topic["topic"]
            yield {"topic": name}, (self._row(name, number, refused) for number in topic["partitions"])

    def _row(self, topic: str, number: int, refused: MillstreamError | None) -> dict[str, Any]:
        error = refused or MillstreamError(ErrorCode.ELECTION_NOT_NEEDED, "its leader is the only one who holds it")
        try:
            find_partition(self._partitions, topic, number)
        except MillstreamError as problem:
            error = refused or problem
        return {"partition_id": number, "error_code": error.code.number, "error_message": error.detail}
