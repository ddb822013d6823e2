"""OffsetDelete: deletes committed offsets of a group, except for topics that its members still read."""

import logging

from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, find_topic
from millstream.groups.commands import DeleteOffsets
from millstream.groups.responses import PartitionErrors
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import caller_fields, log_limited
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "OffsetDelete"
_log = logging.getLogger(__name__)


class OffsetDeleteHandler:
    def __init__(self, groups: GroupCoordination, cluster: ImageSource) -> None:
        self._groups = groups
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        requested = [
            (each["name"], [row["partition_index"] for row in each["partitions"]]) for each in fields["topics"]
        ]
        unknown: dict[tuple[str, int], ErrorCode] = {}
        known: list[tuple[str, int]] = []
        for name, numbers in requested:
            partitions, error = 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            try:
                partitions = find_topic(self._cluster.image, name, request.access).partitions
            except MillstreamError as problem:
                error = problem.code
            for number in numbers:
                if 0 <= number < partitions:
                    known.append((name, number))
                else:
                    unknown[name, number] = error

        def encode(deleted: PartitionErrors) -> bytes:
            count = len(known) - len(deleted.errors)
            if deleted.error is ErrorCode.NONE and count:
                fields_logged = {"group": fields["group_id"], "partitions": count}
                log_limited(_log, "offsets deleted", {**caller_fields(request.peer), **fields_logged})
            return write_response(API, version, _answer(requested, deleted, unknown))

        return answer_later(
            self._groups, DeleteOffsets(fields["group_id"], tuple(known)), PartitionErrors, encode, request.access
        )


def _answer(
    requested: list[tuple[str, list[int]]], deleted: PartitionErrors, unknown: dict[tuple[str, int], ErrorCode]
) -> Fields:
    if deleted.error is not ErrorCode.NONE:
        return {"error_code": deleted.error.number}
    errors = deleted.errors | unknown
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": number, "error_code": errors.get((name, number), ErrorCode.NONE).number}
                for number in numbers
            ],
        }
        for name, numbers in requested
    ]
    return {"error_code": 0, "topics": topics}
