"""Manages the streams of a subscription, one per broker that leads some of its partitions, and queues their messages.

When a stream ends, its queued messages are discarded. A new stream continues after the last message delivered to the
caller. So each message is delivered exactly once to the caller, across reconnects and leader changes.

Invariant: each feed belongs to one stream, or `subscribe` opens a stream when the feed is due. `lost` is set when a
feed has lost its stream.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import READS_ON, PartitionFeed
from millstream.sdk.subscribing.options import StreamSettings
from millstream.sdk.subscribing.stream import StreamOwner, SubscriptionStream

PARTITIONS_MAX = 1_000
"""The most partitions that a broker accepts in one subscription."""

log = logging.getLogger("millstream.sdk.subscription")


class StreamSet:
    """The streams of one subscription.

    `arrived` is called when the queue has a chunk, `failed` with an error that a retry cannot fix.
    """

    def __init__(
        self,
        asking: RetryingCaller,
        settings: StreamSettings,
        arrived: Callable[[], None],
        failed: Callable[[MillstreamError], None],
    ) -> None:
        self.feeds = FeedSet(asking, READS_ON, reads_others=True)
        """One feed per partition; its offset follows the last message delivered to the caller."""
        self.queue: deque[FetchedChunk] = deque()
        """The chunks that were received and not delivered."""
        self.lost = asyncio.Event()
        self._asking = asking
        self._settings = settings
        self._on_arrived = arrived
        self._on_failed = failed
        self._owner = StreamOwner(self._arrived, self._refused, self._ended, failed)
        self._loop = asyncio.get_running_loop()
        self._streams: dict[SubscriptionStream, float] = {}
        """The open streams, and the time at which each was opened."""

    # Opening.

    async def subscribe_all(self, deadline: Deadline) -> None:
        """Open streams for all partitions; raises the error of a feed that gives up or cannot be retried in time."""
        while True:
            await self.subscribe(deadline)
            due_s, trouble = self.feeds.due_s, self.feeds.trouble
            if trouble is None or trouble.error is None or due_s is None:
                return
            wait_s = due_s - self._loop.time()
            if self.feeds.failure is not None or wait_s >= deadline.left_s:
                error = self.feeds.take_failure() or trouble.error
                raise MillstreamError(error.code, error.detail) from error
            await asyncio.sleep(max(0.0, wait_s))

    async def subscribe(self, deadline: Deadline) -> None:
        """Open streams for all partitions without one whose feed is due."""
        self.lost.clear()
        self.feeds.look()
        await self.feeds.find_leaders()
        covered = {where for stream in self._streams for where in stream.places}
        assert len(covered) == sum(len(stream.places) for stream in self._streams), "a feed belongs to one stream"
        by_leader: dict[Address, list[PartitionFeed]] = {}
        for feed in self.feeds:
            if feed.leader is not None and feed.where not in covered and self.feeds.is_ready(feed):
                by_leader.setdefault(feed.leader, []).append(feed)
        for address, feeds in by_leader.items():
            for at in range(0, len(feeds), PARTITIONS_MAX):
                await self._open(address, feeds[at : at + PARTITIONS_MAX], deadline)

    async def _open(self, address: Address, feeds: Sequence[PartitionFeed], deadline: Deadline) -> None:
        stream = SubscriptionStream(address, feeds, self._settings, self._owner)
        self._streams[stream] = self._loop.time()
        try:
            await stream.open(self._asking.cluster, deadline)
        except MillstreamError as error:
            self._streams.pop(stream, None)
            self._lost(stream.places, error)
        except BaseException:
            self._streams.pop(stream, None)
            raise

    async def close(self) -> None:
        for stream in list(self._streams):
            await stream.close()
        self._streams.clear()
        self.queue.clear()

    # Reports of streams.

    def _arrived(self, chunk: FetchedChunk) -> None:
        self.queue.append(chunk)
        self._on_arrived()

    def _refused(self, stream: SubscriptionStream, where: TopicPartition, error: MillstreamError) -> None:
        self._take_back([where])
        if error.code.retriable:
            self._lost([where], error, self._streams[stream])
        else:
            self.feeds.remove(where)
            self._on_failed(error)

    def _ended(self, stream: SubscriptionStream, error: MillstreamError) -> None:
        opened_s = self._streams.pop(stream, inf)
        self._take_back(stream.places)
        self._lost(stream.places, error, opened_s)

    def _lost(self, places: Collection[TopicPartition], error: MillstreamError, opened_s: float = inf) -> None:
        """Report the failure to the partitions' feeds, so that a stream is reopened when they are due."""
        left = [where for where in places if where in self.feeds]
        if left:
            log.info('stream lost, subscribing again partitions=%d error="%s"', len(left), error)
            self.feeds.source_lost(left, error, opened_s)
            self.lost.set()

    def _take_back(self, places: Collection[TopicPartition]) -> None:
        """Discard the queued chunks of these partitions; they are requested again."""
        self.queue = deque(chunk for chunk in self.queue if chunk.where not in places)

    # Chunks.

    def delivered(self, chunk: FetchedChunk) -> None:
        """Remove the first chunk from the queue: it was opened and belongs to the caller."""
        first = self.queue.popleft()
        assert first is chunk, "chunks are delivered in order"
        chunk.feed.advance(chunk.next_offset)
        chunk.feed.decoded()
        self.feeds.answered([chunk.where], ())

    def send_again(self, feed: PartitionFeed, damage: MillstreamError) -> None:
        """End the stream that sent a damaged chunk, to request it again; after several attempts raise the damage."""
        stream = next(each for each in self._streams if feed.where in each.places)
        stream.release(feed.where)
        self._take_back([feed.where])
        self._lost([feed.where], damage)
        stream.end(MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"requesting {feed.where} again: {damage.detail}"))
        if feed.gives_up:
            raise damage

    # Commits.

    def finish(self, where: TopicPartition, offset: int) -> None:
        """Mark everything before `offset` as finished."""
        for stream in self._streams:
            if where in stream.places:
                stream.finish(where, offset)

    def check(self, *, settle: bool) -> None:
        """Check that the brokers still serve the streams; with `settle`, also commit finished messages."""
        for stream in self._streams:
            if settle:
                stream.settle(now=True)
            stream.check()

    async def commit(self, left: dict[TopicPartition, int], metadata: str, deadline: Deadline) -> None:
        """Commit these offsets and remove them from `left`; partitions without a stream stay in it."""
        for stream, share in self._shares(left).items():
            await stream.commit(share, self._asking.cluster.timeout_s(deadline), metadata)
            for where in share:
                del left[where]

    async def commit_last(self, finished: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        for stream, share in self._shares(finished).items():
            try:
                await stream.commit(share, deadline.left_s)
            except MillstreamError as error:
                log.warning('last commit of a subscription failed, its messages are redelivered error="%s"', error)

    def _shares(self, offsets: Mapping[TopicPartition, int]) -> dict[SubscriptionStream, dict[TopicPartition, int]]:
        shares: dict[SubscriptionStream, dict[TopicPartition, int]] = {}
        for stream in self._streams:
            share = {where: offset for where, offset in offsets.items() if where in stream.places}
            if share:
                shares[stream] = share
        return shares
