"""AlterPartitionReassignments and ListPartitionReassignments: accept only a partition's current replicas.

Every other assignment is refused, so no reassignment is ever in progress.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import ImageSource, bad_assignment, find_placement
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

ALTER = "AlterPartitionReassignments"
LIST = "ListPartitionReassignments"


def list_reassignments(request: BrokerRequest) -> bytes:
    read_request(LIST, request.version, request.frame, request.body)
    return write_response(LIST, request.version, {"error_message": None})


class AlterReassignmentsHandler:
    def __init__(self, cluster: ImageSource) -> None:
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(ALTER, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        groups = self._groups(fields["topics"], access)
        rows = await encode_groups(ALTER, version, ("responses",), "partitions", groups)
        answer: dict[str, Any] = {"error_message": None, "responses": rows}
        if version >= 1:
            answer["allow_replication_factor_change"] = fields["allow_replication_factor_change"]
        return write_response(ALTER, version, answer)

    def _groups(self, topics: Sequence[Fields], access: Access) -> Iterator[Group]:
        for topic in topics:
            name = topic["name"]
            yield {"name": name}, (self._row(name, wanted, access) for wanted in topic["partitions"])

    def _row(self, topic: str, wanted: Fields, access: Access) -> dict[str, Any]:
        row: dict[str, Any] = {"partition_index": wanted["partition_index"], "error_message": None}
        try:
            self._check(topic, wanted["partition_index"], wanted["replicas"], access)
        except MillstreamError as error:
            row |= {"error_code": error.code.number, "error_message": error.detail}
        return row

    def _check(self, topic: str, number: int, replicas: list[int] | None, access: Access) -> None:
        image = self._cluster.image
        placement = find_placement(image, topic, number, access)
        if replicas is None:
            raise MillstreamError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition has no reassignment to cancel")
        if tuple(replicas) != placement.replicas:
            raise bad_assignment(image, "the partition", replicas)
