"""OffsetCommit: stores the committed offsets of a group and answers once they are durable.

Partitions that do not exist are refused individually. The other offsets are still committed.
"""

import logging

from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, answer_later, find_topic
from millstream.catalog.cluster_image import ClusterImage
from millstream.groups.commands import CommitOffsets, OffsetToCommit
from millstream.groups.responses import PartitionErrors
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import caller_fields, log_limited
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "OffsetCommit"
_log = logging.getLogger(__name__)
_STALE_EPOCH_FROM = 9
_IDS_FROM = 10


class OffsetCommitHandler:
    def __init__(self, groups: GroupCoordination, cluster: ImageSource) -> None:
        self._groups = groups
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        answer = _Answer(version, fields, self._cluster.image, request.access)
        if not answer.offsets:
            return answer.encode(PartitionErrors())
        command = CommitOffsets(
            group_id=fields["group_id"],
            generation=fields["generation_id_or_member_epoch"],
            member_id=fields["member_id"],
            instance_id=fields["group_instance_id"],
            offsets=tuple(answer.offsets),
            knows_stale_epoch=version >= _STALE_EPOCH_FROM,
        )

        def encode(committed: PartitionErrors) -> bytes:
            if committed.moved_back:
                reset = {"group": command.group_id, "partitions": committed.moved_back}
                log_limited(_log, "offsets reset", {**caller_fields(request.peer), **reset})
            return answer.encode(committed)

        return answer_later(self._groups, command, PartitionErrors, encode, request.access)


class _Answer:
    """The offsets to commit, and the errors of the partitions that are refused."""

    def __init__(self, version: int, fields: Fields, image: ClusterImage, access: Access) -> None:
        self.offsets: list[OffsetToCommit] = []
        self._version = version
        self._topics: list[tuple[Fields, str, list[tuple[int, ErrorCode]]]] = []
        for wanted in fields["topics"]:
            topic, unusable = None, ErrorCode.NONE
            try:
                if access.is_limited:
                    access.check_group(fields["group_id"])
                topic = find_topic(image, wanted["topic_id"] if version >= _IDS_FROM else wanted["name"], access)
            except MillstreamError as problem:
                unusable = problem.code
            name = topic.name if topic is not None else wanted["name"]
            rows: list[tuple[int, ErrorCode]] = []
            for each in wanted["partitions"]:
                number = each["partition_index"]
                error = unusable
                if topic is not None and not 0 <= number < topic.partitions:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif topic is not None:
                    metadata = each["committed_metadata"] or ""
                    self.offsets.append(
                        OffsetToCommit(name, number, each["committed_offset"], each["committed_leader_epoch"], metadata)
                    )
                rows.append((number, error))
            self._topics.append((wanted, name, rows))

    def encode(self, committed: PartitionErrors) -> bytes:
        topics = [
            {
                "name": wanted["name"],
                "topic_id": wanted["topic_id"],
                "partitions": [
                    {"partition_index": number, "error_code": _error(committed, name, number, error).number}
                    for number, error in rows
                ],
            }
            for wanted, name, rows in self._topics
        ]
        return write_response(API, self._version, {"topics": topics})


def _error(committed: PartitionErrors, name: str, number: int, error: ErrorCode) -> ErrorCode:
    if error is not ErrorCode.NONE:
        return error
    if committed.error is not ErrorCode.NONE:
        return committed.error
    return committed.errors.get((name, number), ErrorCode.NONE)
