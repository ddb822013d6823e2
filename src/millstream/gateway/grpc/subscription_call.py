"""Serves a push subscription over a bidirectional stream: messages to the client, commits from the client.

The brokers keep the window, as for every subscription. The gateway forwards what they push, and the client's commits
make room for more. Commits that arrive while one is in progress are merged into the next.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from millstream.gateway.failures import invalid
from millstream.gateway.grpc.call_handling import Call, Write, shutting_down
from millstream.gateway.grpc.message_conversion import edge_of, offsets_of, to_topic_partition_offsets
from millstream.gateway.grpc.v1 import messages_pb2 as pb
from millstream.gateway.operations.clusters import ClusterMember
from millstream.gateway.operations.reads import check_time_ms
from millstream.model.names import TopicPartition
from millstream.model.start_words import LATEST, follow_start
from millstream.process.concurrency import together, until_first
from millstream.sdk.aio.subscription import AsyncSubscription
from millstream.sdk.consuming.start_positions import StartPosition
from millstream.sdk.reader_defaults import SHARE_PERCENT, WINDOW_BYTES, WINDOW_MESSAGES
from millstream.sdk.subscribing.options import SubscriptionOptions

_OUT_OF_RANGE = {
    pb.OUT_OF_RANGE_UNSPECIFIED: "nearest",
    pb.OUT_OF_RANGE_ERROR: "error",
    pb.OUT_OF_RANGE_NEAREST: "nearest",
    pb.OUT_OF_RANGE_LATEST: LATEST,
}


class SubscriptionCall:
    """Serves one subscription stream."""

    def __init__(self, call: Call, answer: Write) -> None:
        self._call = call
        self._answer = answer
        self._write_lock = asyncio.Lock()
        """Serialises writes, because gRPC accepts one at a time."""
        self._done: dict[TopicPartition, int] = {}
        self._has_commits = asyncio.Event()
        self._is_over = False

    async def run(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        """Serve until the client closes its side and its commits are stored. SHUTTING_DOWN when the gateway drains."""
        first = await anext(requests, None)
        if first is None or first.WhichOneof("request") != "start":
            raise invalid("start", "missing; the first request must have `start`")
        options = _options(first.start)
        async with AsyncExitStack() as stack:
            by_topic: dict[str, AsyncSubscription] = {}
            for member, topics in (await self._homes(first.start)).items():
                subscription = member.client.subscription(topics, **options)
                by_topic |= dict.fromkeys(topics, await stack.enter_async_context(subscription))
            await self._send(pb.SubscribeResponse(started=pb.SubscribeStarted()))
            await until_first(
                *(self._forward(each) for each in set(by_topic.values())),
                together(self._take_commits(requests), self._commit(by_topic)),
            )

    async def _homes(self, start: pb.SubscribeStart) -> dict[ClusterMember, list[str]]:
        if not start.topics:
            raise invalid("start.topics", "missing; name at least one topic")
        return await self._call.cluster(start.cluster).homes(dict.fromkeys(start.topics))

    async def _forward(self, subscription: AsyncSubscription) -> None:
        while True:
            batch = await self._call.waiting(subscription.poll_batch(None))
            if batch is not None:
                response = pb.SubscribeBatch(
                    topic=batch.topic,
                    partition=batch.partition,
                    messages=self._call.read(batch.messages),
                    next_offset=batch.next_offset,
                )
                await self._send(pb.SubscribeResponse(batch=response))
            elif self._call.is_drained:
                raise shutting_down()

    async def _take_commits(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        async for request in requests:
            if request.WhichOneof("request") != "commit":
                raise invalid("commit", "missing; every request after the first must have `commit`")
            for row in request.commit.offsets:
                self._done[TopicPartition(row.topic, row.partition)] = row.offset
            self._has_commits.set()
        self._is_over = True
        self._has_commits.set()

    async def _commit(self, by_topic: Mapping[str, AsyncSubscription]) -> None:
        while not self._is_over or self._done:
            await self._has_commits.wait()
            self._has_commits.clear()
            done, self._done = self._done, {}
            shares: dict[AsyncSubscription, dict[TopicPartition, int]] = {}
            for where, offset in done.items():
                if where.topic not in by_topic:
                    raise invalid("commit.offsets", f"topic {where.topic!r} is not subscribed to")
                shares.setdefault(by_topic[where.topic], {})[where] = offset
            for subscription, share in shares.items():
                await subscription.commit(share)
                await self._send(
                    pb.SubscribeResponse(committed=pb.SubscribeCommitted(offsets=to_topic_partition_offsets(share)))
                )

    async def _send(self, response: pb.SubscribeResponse) -> None:
        async with self._write_lock:
            await self._answer(response)


def _options(start: pb.SubscribeStart) -> SubscriptionOptions:
    if start.out_of_range not in _OUT_OF_RANGE:
        raise invalid("start.out_of_range", f"{start.out_of_range} is not a value of OutOfRange")
    return SubscriptionOptions(
        partitions=list(start.partitions) or None,
        start=_hint(start),
        group=start.group or None,
        window_messages=start.window_messages or WINDOW_MESSAGES,
        window_bytes=start.window_bytes or WINDOW_BYTES,
        share_percent=start.share_percent or SHARE_PERCENT,
        auto_commit=None,
        out_of_range=_OUT_OF_RANGE[start.out_of_range],
        on_bad_batch="skip" if start.skip_bad_batches else "raise",
    )


def _hint(start: pb.SubscribeStart) -> StartPosition:
    place = start.start
    kind = place.WhichOneof("position")
    if kind == "offset":
        return place.offset
    if kind == "timestamp_ms":
        return check_time_ms(place.timestamp_ms, "start.start") / 1000
    if kind == "offsets":
        return offsets_of(place.offsets.offsets, "start.start")
    return edge_of(place.edge, "start.start", follow_start(start.group or None))
