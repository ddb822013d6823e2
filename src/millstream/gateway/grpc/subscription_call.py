"""A push subscription over a stream: messages one way, commits the other.

The window is kept by the brokers, as for every subscription: what comes from them is handed on, and what the subscriber
commits makes room for more. Commits that come while one is under way go to the brokers together.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, Write, shutting_down, together, until_first
from millstream.gateway.grpc.message_conversion import edge_of, offsets_of, places_told
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.operations.clusters import ClusterMember
from millstream.gateway.operations.reads import LATEST
from millstream.model.names import TopicPartition
from millstream.sdk.aio.subscription import AsyncSubscription
from millstream.sdk.consuming.start_positions import Hint
from millstream.sdk.subscribing.options import SHARE_PERCENT, WINDOW_BYTES, WINDOW_MESSAGES, SubscriptionOptions

_WHEN_GONE = {
    pb.WHEN_GONE_UNSPECIFIED: "error",
    pb.WHEN_GONE_ERROR: "error",
    pb.WHEN_GONE_BEGINNING: "beginning",
    pb.WHEN_GONE_LATEST: "latest",
}


class SubscriptionCall:
    """One stream."""

    def __init__(self, call: Call, answer: Write) -> None:
        self._call = call
        self._answer = answer
        self._turn = asyncio.Lock()
        """One answer at a time: the transport takes no two."""
        self._done: dict[TopicPartition, int] = {}
        self._news = asyncio.Event()
        self._is_over = False

    async def run(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        """Until the subscriber ends its side, and its commits are kept; SHUTTING_DOWN when the gateway is drained."""
        first = await anext(requests, None)
        if first is None or first.WhichOneof("request") != "start":
            raise invalid("start", "the first request says what is subscribed to")
        options = _options(first.start)
        async with AsyncExitStack() as stack:
            by_topic: dict[str, AsyncSubscription] = {}
            for member, topics in (await self._homes(first.start)).items():
                subscription = member.client.subscription(topics, **options)
                by_topic |= dict.fromkeys(topics, await stack.enter_async_context(subscription))
            await self._say(pb.SubscribeResponse(started=pb.SubscribeStarted()))
            await until_first(
                *(self._hand_on(each) for each in set(by_topic.values())),
                together(self._take_commits(requests), self._commit(by_topic)),
            )

    async def _homes(self, start: pb.SubscribeStart) -> dict[ClusterMember, list[str]]:
        if not start.topics:
            raise invalid("start.topics", "there must be at least one")
        return await self._call.cluster(start.cluster).homes(dict.fromkeys(start.topics))

    async def _hand_on(self, subscription: AsyncSubscription) -> None:
        while True:
            batch = await self._call.waiting(subscription.poll_batch(None))
            if batch is not None:
                told = pb.SubscribeBatch(
                    topic=batch.topic,
                    partition=batch.partition,
                    messages=self._call.read(batch.messages),
                    next_offset=batch.next_offset,
                )
                await self._say(pb.SubscribeResponse(batch=told))
            elif self._call.is_drained:
                raise shutting_down()

    async def _take_commits(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        async for request in requests:
            if request.WhichOneof("request") != "commit":
                raise invalid("commit", "all requests but the first one commit")
            for row in request.commit.offsets:
                self._done[TopicPartition(row.topic, row.partition)] = row.offset
            self._news.set()
        self._is_over = True
        self._news.set()

    async def _commit(self, by_topic: Mapping[str, AsyncSubscription]) -> None:
        while not self._is_over or self._done:
            await self._news.wait()
            self._news.clear()
            done, self._done = self._done, {}
            shares: dict[AsyncSubscription, dict[TopicPartition, int]] = {}
            for where, offset in done.items():
                if where.topic not in by_topic:
                    raise invalid("commit.offsets", f"topic {where.topic!r} is not subscribed to")
                shares.setdefault(by_topic[where.topic], {})[where] = offset
            for subscription, share in shares.items():
                await subscription.commit(share)
                await self._say(pb.SubscribeResponse(committed=pb.SubscribeCommitted(offsets=places_told(share))))

    async def _say(self, told: pb.SubscribeResponse) -> None:
        async with self._turn:
            await self._answer(told)


def _options(start: pb.SubscribeStart) -> SubscriptionOptions:
    if start.when_gone not in _WHEN_GONE:
        raise invalid("start.when_gone", f"there is no such choice as {start.when_gone}")
    return SubscriptionOptions(
        partitions=list(start.partitions) or None,
        start=_hint(start),
        group=start.group or None,
        window_messages=start.window_messages or WINDOW_MESSAGES,
        window_bytes=start.window_bytes or WINDOW_BYTES,
        share_percent=start.share_percent or SHARE_PERCENT,
        auto_commit=None,
        when_gone=_WHEN_GONE[start.when_gone],
    )


def _hint(start: pb.SubscribeStart) -> Hint:
    place = start.start
    kind = place.WhichOneof("place")
    if kind == "offset":
        return place.offset
    if kind == "timestamp_ms":
        return place.timestamp_ms / 1000
    if kind == "offsets":
        return offsets_of(place.offsets.offsets, "start.start")
    return edge_of(place.edge, "start.start", LATEST)
