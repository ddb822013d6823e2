"""ServiceMap, a Millstream API: lists the services with their addresses, and the leader of each partition."""

from collections.abc import Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import ImageSource
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_groups
from millstream.broker.topic_listing import TopicListing, TopicRowFormat, cursor_of, visible_topics
from millstream.catalog.catalog import Placement
from millstream.catalog.cluster_image import ClusterImage, ClusterTopic
from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.services import Service
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ServiceMap"
DETAIL = "Kafka's protocol, and Millstream's own keys"


class ServiceMapHandler:
    def __init__(self, cluster: ImageSource, services: Sequence[Service]) -> None:
        """`services` lists the services besides the brokers' listeners. The sequence may grow later."""
        self._cluster = cluster
        self._services = services

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        image = self._cluster.image
        listeners = [Service("kafka", each.node_id, each.host, each.port, DETAIL) for each in image.brokers.values()]
        answer: dict[str, Any] = {
            "cluster_id": image.cluster_id,
            "controller_id": image.controller_id,
            "services": [service._asdict() for service in (*listeners, *self._services)],
        }
        form = TopicRowFormat(topic_row, _partition, missing_row)
        return await answer_page(API, version, image, fields, form, answer, access)


async def answer_page(
    api: str,
    version: int,
    image: ClusterImage,
    fields: Fields,
    form: TopicRowFormat,
    answer: dict[str, Any],
    access: Access,
) -> bytes:
    """Return `answer` with the requested page of topics."""
    try:
        cursor = cursor_of(fields["cursor"])
    except MillstreamError as error:
        return write_response(api, version, {"error_code": error.code.number, "error_message": error.detail})
    names = fields["topics"]
    names = visible_topics(image, access) if names is None else sorted(set(names))
    page = TopicListing(image, form, fields["partitions_max"], access)
    rows = await encode_groups(api, version, ("topics",), "partitions", page.groups(names, cursor))
    following = page.following and page.following._asdict()
    return write_response(api, version, {**answer, "topics": rows, "next_cursor": following})


def topic_row(topic: ClusterTopic) -> dict[str, Any]:
    return {"name": topic.name}


def missing_row(name: str, error: ErrorCode) -> dict[str, Any]:
    return {"name": name, "error_code": error.number}


def _partition(placement: Placement) -> dict[str, Any]:
    return {
        "partition": placement.key.partition,
        "leader_id": placement.leader,
        "leader_epoch": placement.leader_epoch,
    }
