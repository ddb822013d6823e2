"""Looks up the leaders of feeds in the cluster's metadata, and reports failed requests to feeds and metadata."""

import asyncio
from collections.abc import Collection

from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.sdk.connection.retry_policy import Deadline, chance
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.partition_feed import PartitionFeed
from millstream.sdk.responses import TopicView

TOPICS_PER_REQUEST = 1_000


async def find_leaders(asking: RetryingCaller, feeds: Collection[PartitionFeed], deadline: Deadline) -> None:
    """Set each feed's leader, or report the lookup's failure to it. Topics that are not cached share one request."""
    topics = list(dict.fromkeys(feed.where.topic for feed in feeds))
    views: dict[str, TopicView | MillstreamError] = {}
    for at in range(0, len(topics), TOPICS_PER_REQUEST):
        some = topics[at : at + TOPICS_PER_REQUEST]
        try:
            views |= await asking.cluster.topics(some, deadline)
        except MillstreamError as error:
            views |= dict.fromkeys(some, error)
    now_s, spread = asyncio.get_running_loop().time(), chance(asking.entropy)
    for feed in feeds:
        view = views[feed.where.topic]
        try:
            if isinstance(view, MillstreamError):
                raise view
            feed.led_by(asking.cluster.leader_in(view, feed.where.partition), TopicId(view.topic_id))
        except MillstreamError as error:
            report_failure(asking, feed, error, now_s, spread)


def report_failure(
    asking: RetryingCaller, feed: PartitionFeed, error: MillstreamError, now_s: float, spread: float
) -> None:
    """Report a refusal or a lost connection to a feed and to the cached metadata of its topic."""
    feed.failed(error, now_s, spread, asking.cluster.leader_failed(feed.where, str(feed.leader), error))
