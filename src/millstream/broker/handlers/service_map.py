"""Service map: one of Millstream's own keys. Which service runs where, and who leads which partition."""

from collections.abc import Sequence
from typing import Any

from millstream.broker.dispatch.capabilities import BrokerIdentity, TopicLookup
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_groups
from millstream.broker.topic_listing import TopicListing, TopicRowFormat, cursor_of
from millstream.catalog.catalog import Topic
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.services import Service
from millstream.partition.partition import Partition
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "ServiceMap"


class ServiceMapHandler:
    def __init__(self, topics: TopicLookup, identity: BrokerIdentity, services: Sequence[Service]) -> None:
        """`services` are those besides the brokers' listeners; there may be more of them later."""
        self._topics = topics
        self._identity = identity
        self._services = services

    def __call__(self, request: BrokerRequest) -> Result:
        return Work(self._answer(request.version, read_request(API, request.version, request.frame, request.body)))

    async def _answer(self, version: int, fields: Fields) -> bytes:
        me = self._identity
        kafka = Service("kafka", me.node_id, me.host, me.port, "Kafka's protocol, and Millstream's own keys")
        answer: dict[str, Any] = {
            "cluster_id": me.cluster_id,
            "controller_id": me.node_id,
            "services": [service._asdict() for service in (kafka, *self._services)],
        }
        page = TopicListing(self._topics, TopicRowFormat(topic_row, _partition, missing_row), fields["partitions_max"])
        return await answer_page(API, version, self._topics, fields, page, answer)


async def answer_page(
    api: str, version: int, topics: TopicLookup, fields: Fields, page: TopicListing, answer: dict[str, Any]
) -> bytes:
    """The answer with the page that the request asks for."""
    try:
        cursor = cursor_of(fields["cursor"])
    except MillstreamError as error:
        return write_response(api, version, {"error_code": error.code.number, "error_message": error.detail})
    names = fields["topics"]
    names = [each.name for each in topics.topics()] if names is None else sorted(set(names))
    rows = await encode_groups(api, version, ("topics",), "partitions", page.groups(names, cursor))
    following = page.following and page.following._asdict()
    return write_response(api, version, {**answer, "topics": rows, "next_cursor": following})


def topic_row(topic: Topic) -> dict[str, Any]:
    return {"name": topic.name}


def missing_row(name: str, error: ErrorCode) -> dict[str, Any]:
    return {"name": name, "error_code": error.number}


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader_id": partition.placement.leader,
        "leader_epoch": partition.leader_epoch,
    }
