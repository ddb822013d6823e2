"""BackupMap, a Millstream API: lists the followers of each partition and their lag. A single broker has no followers.

The broker reports offsets only of the partitions that it leads.
"""

from typing import Any

from millstream.broker.dispatch.capabilities import PartitionLookup
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.handlers.service_map import answer_page, missing_row, topic_row
from millstream.broker.topic_listing import TopicRowFormat
from millstream.catalog.catalog import Placement
from millstream.wire.messages import read_request

API = "BackupMap"
ALONE = "this cluster has one broker, so no partition has a backup"
_UNKNOWN = -1


class BackupMapHandler:
    def __init__(self, partitions: PartitionLookup) -> None:
        self._partitions = partitions

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        image = self._partitions.image
        form = TopicRowFormat(topic_row, self._partition, missing_row)
        answer = {"note": ALONE if len(image.brokers) == 1 else None}
        return Work(answer_page(API, request.version, image, fields, form, answer, request.access))

    def _partition(self, placement: Placement) -> dict[str, Any]:
        partition = self._partitions.get_by_id(*placement.key)
        return {
            "partition": placement.key.partition,
            "leader_id": placement.leader,
            "end_offset": partition.log.end_offset if partition is not None else _UNKNOWN,
            "high_watermark": partition.high_watermark if partition is not None else _UNKNOWN,
            "followers": [
                {"node_id": node, "in_sync": node in placement.in_sync, "end_offset": _UNKNOWN}
                for node in placement.replicas
                if node != placement.leader
            ],
        }
