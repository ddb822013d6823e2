"""AlterPartitionReassignments and ListPartitionReassignments: with one broker a partition can only stay where it is.

To stay is therefore granted, everything else refused, and none is ever under way.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import BrokerIdentity, PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

ALTER = "AlterPartitionReassignments"
LIST = "ListPartitionReassignments"


def list_reassignments(request: BrokerRequest) -> bytes:
    read_request(LIST, request.version, request.frame, request.body)
    return write_response(LIST, request.version, {"error_message": None})


class AlterReassignmentsHandler:
    def __init__(self, partitions: PartitionLookup, identity: BrokerIdentity) -> None:
        self._partitions = partitions
        self._identity = identity

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(ALTER, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        rows = await encode_groups(ALTER, version, ("responses",), "partitions", self._groups(fields["topics"]))
        answer: dict[str, Any] = {"error_message": None, "responses": rows}
        if version >= 1:
            answer["allow_replication_factor_change"] = fields["allow_replication_factor_change"]
        return write_response(ALTER, version, answer)

    def _groups(self, topics: Sequence[Fields]) -> Iterator[Group]:
        for topic in topics:
            name = topic["name"]
            yield {"name": name}, (self._row(name, wanted) for wanted in topic["partitions"])

    def _row(self, topic: str, wanted: Fields) -> dict[str, Any]:
        row: dict[str, Any] = {"partition_index": wanted["partition_index"], "error_message": None}
        try:
            self._check(topic, wanted["partition_index"], wanted["replicas"])
        except MillstreamError as error:
            row |= {"error_code": error.code.number, "error_message": error.detail}
        return row

    def _check(self, topic: str, number: int, replicas: list[int] | None) -> None:
        find_partition(self._partitions, topic, number)
        if replicas is None:
            raise MillstreamError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "there is nothing to be called off")
        if list(replicas) != [self._identity.node_id]:
            raise MillstreamError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"assigned to {list(replicas)[:10]}; the only broker is {self._identity.node_id}",
            )
