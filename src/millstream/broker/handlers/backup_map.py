"""Backup map, a Millstream API: the followers of each partition and their lag. A single broker has none."""

from typing import Any

from millstream.broker.dispatch.capabilities import TopicLookup
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.handlers.service_map import answer_page, missing_row, topic_row
from millstream.broker.topic_listing import TopicListing, TopicRowFormat
from millstream.partition.partition import Partition
from millstream.wire.messages import read_request

API = "BackupMap"
ALONE = "this cluster has one broker, so no partition has a backup"


class BackupMapHandler:
    def __init__(self, topics: TopicLookup) -> None:
        self._topics = topics

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        page = TopicListing(self._topics, TopicRowFormat(topic_row, _partition, missing_row), fields["partitions_max"])
        return Work(answer_page(API, request.version, self._topics, fields, page, {"note": ALONE}))


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader_id": partition.placement.leader,
        "end_offset": partition.log.end_offset,
        "high_watermark": partition.high_watermark,
        "followers": [],
    }
