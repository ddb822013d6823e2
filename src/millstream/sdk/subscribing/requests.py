"""Builds the requests of subscriptions, and decodes their answers."""

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.requests import naming_leader
from millstream.sdk.responses import refusal
from millstream.sdk.subscribing.options import SubscriptionWindow
from millstream.wire.client_connection import Api, ApiRequest
from millstream.wire.messages import read_response, write_request
from millstream.wire.subscribe import Delivered, Delivery, parse_delivery

SUBSCRIBE = Api(1020, "Subscribe", 0, 0)
COMMIT = Api(1021, "SubscriptionCommit", 0, 0)
UNSUBSCRIBE = Api(1022, "Unsubscribe", 0, 0)


def subscribe(
    feeds: Iterable[PartitionFeed],
    window: SubscriptionWindow,
    group_id: str | None,
    out_of_range: int,
    *,
    start: int | None = None,
) -> ApiRequest[Delivered]:
    """Build a standing Subscribe request: the broker sends deliveries after its response.

    An error of the whole subscription is a field of the response or of a later delivery, not an exception. The request
    names the leader epoch and the topic id of each feed, so that an outdated leader, or another topic of the same name,
    is refused. `start` replaces the offsets of the feeds.
    """
    topics: dict[str, dict[str, Any]] = {}
    for feed in feeds:
        offset, leader_epoch = feed.position
        row = {
            "partition": feed.where.partition,
            "offset": offset if start is None else start,
            "leader_epoch": leader_epoch,
        }
        topic = {"name": feed.where.topic, "topic_id": feed.named_topic_id, "partitions": []}
        topics.setdefault(feed.where.topic, topic)["partitions"].append(row)
    fields = {
        "group_id": group_id,
        "window_messages": window.messages,
        "window_bytes": window.size_bytes,
        "share_percent": window.share_percent,
        "otherwise": out_of_range,
        "topics": list(topics.values()),
    }

    def decode(_version: int, frame: memoryview, start: int) -> Delivered:
        return parse_delivery(frame, start)

    return ApiRequest(SUBSCRIBE, lambda version: [write_request(SUBSCRIBE.name, version, fields)], decode, stands=True)


def row_refusal(row: Delivery) -> MillstreamError:
    """Return the error of a partition in a delivery, with the current leader if the delivery names it."""
    error = refusal(row.error, str(TopicPartition(row.topic, row.partition)), row.message)
    return naming_leader(error, row.current_leader)


def commit(
    subscription_id: int, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> ApiRequest[dict[TopicPartition, MillstreamError]]:
    """Build a commit request; its response maps refused partitions to errors. All other partitions are committed."""
    fields = {"subscription_id": subscription_id, "member_id": "", "topics": _by_topic(offsets, metadata=metadata)}

    def decode(version: int, frame: memoryview, start: int) -> dict[TopicPartition, MillstreamError] | MillstreamError:
        answer = read_response(COMMIT.name, version, frame, start)
        if answer["error_code"]:
            return refusal(answer["error_code"], "the subscription", answer["error_message"])
        refused = {}
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                where = TopicPartition(topic["name"], row["partition"])
                if row["error_code"] != ErrorCode.NONE.number:
                    refused[where] = refusal(row["error_code"], f"committing {where}")
        return refused

    return ApiRequest(COMMIT, lambda version: [write_request(COMMIT.name, version, fields)], decode)


def unsubscribe(subscription_id: int) -> ApiRequest[None]:
    """Build an Unsubscribe request; the broker sends no deliveries after its response."""

    def decode(version: int, frame: memoryview, start: int) -> MillstreamError | None:
        answer = read_response(UNSUBSCRIBE.name, version, frame, start)
        number = answer["error_code"]
        return refusal(number, "the subscription", answer["error_message"]) if number else None

    fields = {"subscription_id": subscription_id}
    return ApiRequest(UNSUBSCRIBE, lambda version: [write_request(UNSUBSCRIBE.name, version, fields)], decode)


def _by_topic(places: Mapping[TopicPartition, int], **more: Any) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in places.items():
        topics.setdefault(topic, []).append({"partition": partition, "offset": offset, **more})
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]
