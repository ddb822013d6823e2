"""ListOffsets: where a partition begins and ends, and which offset belongs to a time."""

from penstock.broker.capabilities import PartitionLookup, find_partition
from penstock.broker.partition_rows import ELEMENTS_MAX, answer_partitions
from penstock.broker.request import Request, Result, Work
from penstock.model.errors import PenstockError
from penstock.wire.messages import read_request
from penstock.wire.reader import Fields

API = "ListOffsets"


class ListOffsetsHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> Result:
        fields = read_request(API, request.version, request.frame, request.body, ELEMENTS_MAX)
        return Work(answer_partitions(API, request.version, fields["topics"], "name", self._look_up))

    async def _look_up(self, topic: str, wanted: Fields) -> Fields:
        number = wanted["partition_index"]
        try:
            partition = find_partition(self._partitions, topic, number)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
            found = await partition.offset_for_time(wanted["timestamp"])
        except PenstockError as error:
            return {"partition_index": number, "error_code": error.code.number}
        return {
            "partition_index": number,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }
