"""OffsetDelete: a group forgets what it has committed for some partitions, unless it still reads their topic."""

from millstream.broker.dispatch.request import BrokerRequest, Result
from millstream.broker.group_requests import GroupCoordination, TopicNames, answer_later
from millstream.groups.commands import DeleteOffsets
from millstream.groups.responses import PartitionErrors
from millstream.model.errors import ErrorCode
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "OffsetDelete"


class OffsetDeleteHandler:
    def __init__(self, groups: GroupCoordination, topics: TopicNames) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: BrokerRequest) -> Result:
        version = request.version
        fields = read_request(API, version, request.frame, request.body)
        asked = [(each["name"], [row["partition_index"] for row in each["partitions"]]) for each in fields["topics"]]
        unknown: dict[tuple[str, int], ErrorCode] = {}
        known: list[tuple[str, int]] = []
        for name, numbers in asked:
            topic = self._topics.topic(name)
            for number in numbers:
                if topic is not None and 0 <= number < topic.partitions:
                    known.append((name, number))
                else:
                    unknown[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def encode(deleted: PartitionErrors) -> bytes:
            return write_response(API, version, _answer(asked, deleted, unknown))

        return answer_later(self._groups, DeleteOffsets(fields["group_id"], tuple(known)), PartitionErrors, encode)


def _answer(
    asked: list[tuple[str, list[int]]], deleted: PartitionErrors, unknown: dict[tuple[str, int], ErrorCode]
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
        for name, numbers in asked
    ]
    return {"error_code": 0, "topics": topics}
