"""DescribeTopicPartitions: as Metadata, but in pages."""

from typing import Any

from millstream.broker.dispatch.authorized_operations import TOPIC_OPERATIONS
from millstream.broker.dispatch.capabilities import BrokerIdentity, TopicLookup
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_groups, encode_rows
from millstream.broker.topic_listing import TopicListing, TopicRowFormat, cursor_of
from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import INTERNAL_PREFIX
from millstream.partition.partition import Partition
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DescribeTopicPartitions"


class DescribeTopicPartitionsHandler:
    def __init__(self, topics: TopicLookup, identity: BrokerIdentity) -> None:
        self._topics = topics
        self._identity = identity

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        names = sorted({topic["name"] for topic in fields["topics"]}) or [each.name for each in self._topics.topics()]
        try:
            cursor = cursor_of(fields["cursor"])
        except MillstreamError as error:
            refused = ({"name": name, "error_code": error.code.number} for name in names)
            return write_response(API, version, {"topics": await encode_rows(API, version, ("topics",), refused)})
        page = TopicListing(
            self._topics, TopicRowFormat(_topic, self._partition, _missing), fields["response_partition_limit"]
        )
        rows = await encode_groups(API, version, ("topics",), "partitions", page.groups(names, cursor))
        following = page.following and page.following._asdict()
        return write_response(API, version, {"topics": rows, "next_cursor": following})

    def _partition(self, partition: Partition) -> dict[str, Any]:
        return {
            "partition_index": partition.number,
            "leader_id": self._identity.node_id,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": [self._identity.node_id],
            "isr_nodes": [self._identity.node_id],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        }


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name.startswith(INTERNAL_PREFIX),
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _missing(name: str, error: ErrorCode) -> dict[str, Any]:
    return {"name": name, "error_code": error.number, "topic_authorized_operations": TOPIC_OPERATIONS}
