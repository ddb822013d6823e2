"""OffsetForLeaderEpoch: where a leadership ended, so that a client can tell whether its position still holds."""

from typing import Any

from penstock.broker.capabilities import PartitionLookup, find_partition
from penstock.broker.request import Request
from penstock.model.errors import PenstockError
from penstock.wire.messages import read_request, write_response

API = "OffsetForLeaderEpoch"


class OffsetForLeaderEpochHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        topics = [
            {
                "topic": topic["topic"],
                "partitions": [self._look_up(topic["topic"], wanted) for wanted in topic["partitions"]],
            }
            for topic in fields["topics"]
        ]
        return write_response(API, request.version, {"topics": topics})

    def _look_up(self, topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
        number = wanted["partition"]
        try:
            partition = find_partition(self._partitions, topic, number)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
        except PenstockError as error:
            return {"partition": number, "error_code": error.code.number}
        end = partition.epoch_end(wanted["leader_epoch"])
        return {"partition": number, "leader_epoch": end.epoch, "end_offset": end.end_offset}
