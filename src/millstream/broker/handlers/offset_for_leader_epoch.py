"""OffsetForLeaderEpoch: returns the end offset of a leader epoch, so that clients can detect a truncated log."""

from functools import partial

from millstream.broker.dispatch.capabilities import PartitionLookup, find_partition
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.partition_rows import answer_partitions
from millstream.model.authorization import Access
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields

API = "OffsetForLeaderEpoch"


class OffsetForLeaderEpochHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        look_up = partial(self._look_up, request.access)
        return Work(answer_partitions(API, request.version, fields["topics"], "topic", look_up))

    async def _look_up(self, access: Access, topic: str, wanted: Fields) -> Fields:
        number = wanted["partition"]
        try:
            partition = find_partition(self._partitions, topic, number, access)
            partition.check_leader_epoch(wanted["current_leader_epoch"])
        except MillstreamError as error:
            return {"partition": number, "error_code": error.code.number}
        end = partition.epoch_end(wanted["leader_epoch"])
        return {"partition": number, "leader_epoch": end.epoch, "end_offset": end.end_offset}
