"""OffsetForLeaderEpoch: where a leadership ended, so that a client can tell whether its position still holds."""

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.partition_rows import answer_partitions
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields

API = "OffsetForLeaderEpoch"


class OffsetForLeaderEpochHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(answer_partitions(API, request.version, fields["topics"], "topic", self._look_up))

    async def _look_up(self, topic: str, wanted: Fields) -> Fields:
        number = wanted["partition"]
        try:
            partition = find_partition(self._partitions, topic, number)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
        except MillstreamError as error:
            return {"partition": number, "error_code": error.code.number}
        end = partition.epoch_end(wanted["leader_epoch"])
        return {"partition": number, "leader_epoch": end.epoch, "end_offset": end.end_offset}
