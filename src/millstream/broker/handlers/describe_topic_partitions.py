"""DescribeTopicPartitions: lists topics and partitions like Metadata, page by page."""

from collections.abc import Container
from functools import partial
from typing import Any

from millstream.broker.dispatch.authorized_operations import topic_operations
from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.encoded_topics import placement_row
from millstream.broker.response_rows import encode_groups, encode_rows
from millstream.broker.topic_listing import TopicListing, TopicRowFormat, cursor_of, visible_topics
from millstream.catalog.catalog import Placement
from millstream.catalog.cluster_image import ClusterTopic
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DescribeTopicPartitions"


class DescribeTopicPartitionsHandler:
    def __init__(self, cluster: ImageSource) -> None:
        self._cluster = cluster

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        image = self._cluster.image
        names = sorted({topic["name"] for topic in fields["topics"]}) or visible_topics(image, access)
        try:
            cursor = cursor_of(fields["cursor"])
        except MillstreamError as error:
            refused = ({"name": name, "error_code": error.code.number} for name in names)
            return write_response(API, version, {"topics": await encode_rows(API, version, ("topics",), refused)})
        partition = partial(_partition, image.brokers.keys())
        form = TopicRowFormat(partial(_topic, access), partition, partial(_missing, access))
        page = TopicListing(image, form, fields["response_partition_limit"], access)
        rows = await encode_groups(API, version, ("topics",), "partitions", page.groups(names, cursor))
        following = page.following and page.following._asdict()
        return write_response(API, version, {"topics": rows, "next_cursor": following})


def _partition(nodes: Container[int], placement: Placement) -> dict[str, Any]:
    row = placement_row(placement, nodes)
    return row | {"eligible_leader_replicas": [], "last_known_elr": []}


def _topic(access: Access, topic: ClusterTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": topic_operations(access, topic.name),
    }


def _missing(access: Access, name: str, error: ErrorCode) -> dict[str, Any]:
    operations = topic_operations(access, name)
    return {"name": name, "error_code": error.number, "topic_authorized_operations": operations}
