"""Implements a push subscription below its public class, as asyncio code on one event loop.

Brokers push messages to streams (see `stream_set`). Every message is delivered once to the caller, across reconnects.
Messages count as received once the caller names them in its next call. Until then, an interrupted call does not lose
them: the next call returns them again.
With a group, messages after the last commit are delivered again to the group's next subscription. A background task,
the keeper, looks for new partitions and reopens streams until it fails.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError, UnreadableError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.records.header import CorruptBatch
from millstream.records.message import Message
from millstream.sdk.admin.groups import Coordinators, GroupsEngine
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.bad_values import SkippingDecoder
from millstream.sdk.consuming.start_positions import ADDED_FROM
from millstream.sdk.feed.batch_opening import is_heavy
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.feed.fetched_chunk import FetchedChunk
from millstream.sdk.feed.partition_feed import MISSING
from millstream.sdk.feed.undecodable_batches import apart, log_skipped
from millstream.sdk.metrics import count_read
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight
from millstream.sdk.subscribing.options import StreamSettings, SubscriptionEngineSettings
from millstream.sdk.subscribing.stream_set import StreamSet

START_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 60.0
LOOK_FOR_MISSING_S = 5.0
"""The interval at which the subscription looks for partitions that were added to its topics."""

CHECK_S = 15.0
"""The interval of liveness checks of brokers that send nothing."""

CLOSE_TIMEOUT_S = 3.0
_READ_TWICE = "another task or thread is reading this subscription; use it in one task or thread at a time"
_EVER_S = 1e9

log = logging.getLogger("millstream.sdk.subscription")


class DeliveredMessages(NamedTuple):
    """One or more messages of one partition, with the offsets before and after them."""

    where: TopicPartition
    messages: list[Message]
    position: int
    next_offset: int

    def behind(self, taken: int) -> int:
        """Return the position of the partition after the first `taken` messages."""
        if not taken:
            return self.position
        return self.next_offset if taken == len(self.messages) else self.messages[taken].offset


class OpenedChunk(NamedTuple):
    """A chunk that was opened, or the error (`damage`) with which opening failed."""

    chunk: FetchedChunk
    damage: MillstreamError | None


class SubscriptionEngine:
    def __init__(
        self, asking: RetryingCaller, settings: SubscriptionEngineSettings, skipping: SkippingDecoder | None = None
    ) -> None:
        """`skipping` is the caller's decoder if it skips messages; the engine counts these in the metrics."""
        self._asking = asking
        self._skipping = skipping
        self._settings = settings
        stream_settings = StreamSettings(settings.window, settings.group_id, settings.out_of_range, asking.entropy)
        self._news = asyncio.Event()
        self._streams = StreamSet(asking, stream_settings, self._news.set, self._failed)
        self.finished: dict[TopicPartition, int] = {}
        """The offset after the last finished message, for each partition."""
        self._topic_ids: dict[str, TopicId] = {}
        """The ids of the topics to which the positions belong."""
        self._failure: MillstreamError | None = None
        self._has_told_end = False
        """True if the error that ended the subscription was raised. Later calls raise it at the end of their time."""
        self._keeper: asyncio.Task[None] | None = None
        self._starting = SharedStart(self._start, "start of a subscription")
        self._opening = SingleFlight(self._open_first, "opening of a chunk")
        self._delivered: DeliveredMessages | None = None
        """The messages that the last call returned, or would have returned if it had not been interrupted."""
        self._is_asked = False

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next message for each partition; the last delivered messages do not count as taken."""
        positions = {feed.where: feed.offset for feed in self._streams.feeds}
        if self._delivered is not None and self._delivered.where in positions:
            positions[self._delivered.where] = self._delivered.position
        return positions

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were received and not delivered to the caller."""
        return sum(chunk.size_bytes for chunk in self._streams.queue)

    def health(self) -> ConnectionHealth:
        """Return the state of the subscription's connections, missing topics, and the bytes not delivered."""
        health = self._asking.cluster.health(self.buffered_bytes)
        return health.with_missing(self._streams.feeds.missing_topics)

    # Lifecycle.

    async def start(self) -> None:
        """Look up the start offsets and subscribe, once; raises the error if that fails or times out."""
        await self._starting.wait()

    async def _start(self) -> None:
        deadline = Deadline(START_TIMEOUT_S)
        self._topic_ids.clear()
        starts = await _starts(self._asking, self._settings, await self._places(deadline), deadline)
        self._streams.feeds.clear()
        for where, offset in starts.items():
            self._streams.feeds.add(where, offset, self._topic_ids[where.topic])
        try:
            await self._streams.subscribe_all(deadline)
        except BaseException:
            await self._streams.close()
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self, delivered: DeliveredMessages | None = None, finished: int = 0) -> None:
        """Commit finished messages, including the first `finished` of `delivered`, and close the subscription."""
        if delivered is not None and self._settings.auto_commit_s is not None:
            offset = delivered.behind(finished)
            self.finished[delivered.where] = max(offset, self.finished.get(delivered.where, offset))
        self._count_skipped()
        if self._skipping is not None:
            self._skipping.log_skipped()
        await self._starting.close()
        await self._opening.close()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._settings.auto_commit_s is not None and self._settings.group_id is not None:
            await self._streams.commit_last(self.finished, Deadline(CLOSE_TIMEOUT_S))
        await self._streams.close()

    # Reading.

    async def next(
        self, timeout_s: float | None, received: DeliveredMessages | None = None
    ) -> DeliveredMessages | None:
        """Return the next messages of any partition; None after the timeout (`timeout_s=None` waits without limit).

        `received` are the last messages that reached the caller; they are finished. If the previous result did not
        reach the caller, because the call was interrupted, it is returned again. Retriable failures are retried. Raises
        errors that a retry cannot fix (the topic or group is refused, an offset does not exist any more, messages are
        damaged), a failed start, and CLIENT_MISUSED if another task or thread is waiting in this method.
        """
        if self._is_asked:
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, _READ_TWICE)
        self._is_asked = True
        self._count_skipped()
        try:
            deadline = Deadline(_EVER_S if timeout_s is None else timeout_s)
            if not await self._starting.wait_until(deadline):
                return None
            if self._delivered is not None:
                if self._delivered is not received:
                    return self._delivered
                self._delivered = None
                self.finish(received.where, received.next_offset)
            if self._has_told_end and timeout_s is not None:
                await asyncio.sleep(deadline.left_s)  # A loop that polls again after each error must not be busy.
            return await self._until(deadline)
        finally:
            self._is_asked = False

    def _count_skipped(self) -> None:
        if self._skipping is not None:
            self._skipping.count_skipped(self._asking.metrics)

    async def _until(self, deadline: Deadline) -> DeliveredMessages | None:
        while True:
            while self._streams.queue:
                opened = await self._open(deadline)
                if opened is None:
                    return None
                delivered = self._take(opened)
                if delivered is not None:
                    return delivered
            self._raise_failure()
            self._news.clear()
            try:
                async with asyncio.timeout(deadline.left_s):
                    await self._news.wait()
            except TimeoutError:
                return None

    async def _open(self, deadline: Deadline) -> OpenedChunk | None:
        """Open the first chunk, in a worker if it is heavy; None at the deadline, after which the worker continues."""
        if not self._opening.is_under_way and not is_heavy(self._streams.queue[0].stored):
            return _opened(self._streams.queue[0])
        opening = await self._opening.wait(deadline)
        return None if opening is None else opening.result()

    async def _open_first(self) -> OpenedChunk:
        return await self._asking.workers.run(partial(_opened, self._streams.queue[0]))

    def _take(self, opened: OpenedChunk) -> DeliveredMessages | None:
        """Return the chunk's messages; None if it has none, or if it was taken back while it was opened.

        A damaged chunk is requested again; if it is still damaged after several attempts, the error is raised. A batch
        that cannot be decoded is skipped, or its error is raised whenever it is next.
        """
        chunk, damage = opened
        queue, where = self._streams.queue, chunk.where
        if not queue or queue[0] is not chunk:
            return None
        if damage is not None and not _skip(self._streams, chunk, damage, self._settings.skips_bad_batches):
            return None
        self._streams.delivered(chunk)
        messages = [] if damage is not None else chunk.open()
        if not messages:
            self.finish(where, chunk.next_offset)  # Offsets without messages need no processing.
            return None
        count_read(self._asking.metrics, where.topic, messages=len(messages), size_bytes=chunk.size_bytes)
        self._delivered = DeliveredMessages(where, messages, chunk.offset, chunk.next_offset)
        return self._delivered

    def finish(self, where: TopicPartition, offset: int) -> None:
        """Mark everything before `offset` as finished, unless auto-commit is off."""
        if self._settings.auto_commit_s is None:
            return
        self.finished[where] = offset
        self._streams.finish(where, offset)

    async def commit(self, offsets: Mapping[TopicPartition, int], metadata: str, timeout_s: float) -> None:
        """Commit these offsets; waits for partitions whose stream is being reopened."""
        deadline = Deadline(timeout_s)
        left = dict(offsets)

        async def attempt() -> None:
            await self._streams.commit(left, metadata, deadline)
            _check_known(self._streams.feeds, left)

        await self._asking.retrying(attempt, deadline)

    def _failed(self, error: MillstreamError) -> None:
        self._failure = error
        self._news.set()

    def _raise_failure(self) -> None:
        error = self._failure
        if error is not None:
            if self._streams.feeds:
                self._failure = None
            else:
                self._has_told_end = True
            raise MillstreamError(error.code, error.detail)

    # The keeper.

    async def _keep(self) -> None:
        """Run the keeper until it fails; then report the failure to the reader and read nothing more."""
        try:
            failure = await self._keep_on()
        except Exception as error:
            failure = client_failed(log, "the subscription", error)
        self._streams.feeds.clear()
        self._failed(failure)

    async def _keep_on(self) -> MillstreamError:
        """Reopen streams and look for new partitions; returns the error that ends the subscription."""
        loop = asyncio.get_running_loop()
        looked_s, look_at_s = loop.time(), loop.time() + LOOK_AGAIN_S
        while True:
            if self._streams.feeds.missing_topics:
                look_at_s = min(look_at_s, looked_s + LOOK_FOR_MISSING_S)
            await self._wait_for_trouble(min(look_at_s, self._streams.feeds.due_s or inf) - loop.time())
            if loop.time() >= look_at_s:
                try:
                    await self._find_new(Deadline(START_TIMEOUT_S))
                    looked_s, look_at_s = loop.time(), loop.time() + LOOK_AGAIN_S
                except MillstreamError as error:
                    if not error.code.retriable:
                        return error
            await self._streams.subscribe(Deadline(START_TIMEOUT_S))
            if self._streams.feeds.failure is not None:
                return self._streams.feeds.failure

    async def _wait_for_trouble(self, timeout_s: float) -> None:
        """Wait for a lost stream or the timeout; meanwhile check brokers and commit at the configured intervals."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        commit_s = None if self._settings.group_id is None else self._settings.auto_commit_s
        period_s = CHECK_S if commit_s is None else min(commit_s, CHECK_S)
        while not self._streams.lost.is_set() and loop.time() < end_s:
            try:
                async with asyncio.timeout(min(period_s, end_s - loop.time())):
                    await self._streams.lost.wait()
            except TimeoutError:
                self._streams.check(settle=commit_s is not None)

    async def _find_new(self, deadline: Deadline) -> None:
        """Read partitions that were added to a topic, and topics that were created again, from their beginning.

        The feeds report missing topics. A topic that was created again is read if other topics are read meanwhile.
        """
        chosen, feeds = self._settings.partitions, self._streams.feeds
        missing = feeds.missing_topics
        topics = self._settings.topics if chosen is None else missing
        for topic in topics:
            self._asking.cluster.forget(topic)
        for topic, view in (await self._asking.cluster.topics(topics, deadline)).items():
            if isinstance(view, MillstreamError):
                if view.code not in MISSING:
                    raise view
                continue
            if self._topic_ids[topic] not in (NO_TOPIC_ID, view.topic_id):
                if topic not in missing or feeds.missing is not None:
                    continue
                self._drop(topic)
                self._topic_ids[topic] = TopicId(view.topic_id)
            for number in [row.number for row in view.partitions] if chosen is None else chosen:
                where = TopicPartition(topic, number)
                if where not in feeds:
                    feeds.add(where, ADDED_FROM, self._topic_ids[topic])

    def _drop(self, topic: str) -> None:
        """Forget the positions in a deleted topic."""
        for where in [feed.where for feed in self._streams.feeds if feed.where.topic == topic]:
            self._streams.feeds.remove(where)
            self.finished.pop(where, None)

    async def _places(self, deadline: Deadline) -> list[TopicPartition]:
        chosen, topics = self._settings.partitions, self._settings.topics
        await self._asking.retrying(partial(self._asking.cluster.topics, topics, deadline), deadline)
        places = []
        for topic in topics:
            view = await self._asking.retrying(partial(self._asking.cluster.topic, topic, deadline), deadline, topic)
            self._topic_ids.setdefault(topic, TopicId(view.topic_id))
            numbers = [row.number for row in view.partitions] if chosen is None else chosen
            places += [TopicPartition(topic, number) for number in numbers]
        return places


async def _starts(
    asking: RetryingCaller, settings: SubscriptionEngineSettings, places: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the committed offsets of the group, and the start position for partitions without one."""
    found: dict[TopicPartition, int] = {}
    if settings.group_id is not None:
        groups = GroupsEngine(asking, Coordinators(asking))
        committed = await groups.offsets(settings.group_id, places, timeout_s=deadline.left_s)
        found = {where: row.offset for where, row in committed.items()}
    rest = [where for where in places if where not in found]
    return found | await settings.start.find(asking, rest, deadline)


def _opened(chunk: FetchedChunk) -> OpenedChunk:
    try:
        chunk.open()
    except MillstreamError as error:
        return OpenedChunk(chunk, error)
    return OpenedChunk(chunk, None)


def _check_known(feeds: FeedSet, left: Mapping[TopicPartition, int]) -> None:
    """Raise the reason why these offsets could not be committed, if there are any."""
    for where in left:
        if where not in feeds:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, f"this subscription does not include {where}")
        raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"the stream of {where} is being reopened")


def _skip(streams: StreamSet, chunk: FetchedChunk, damage: MillstreamError, skips_bad_batches: bool) -> bool:
    """Return true to skip the chunk, which cannot be opened.

    Otherwise its batches are queued one by one, or it is requested again, or its error is raised.
    """
    try:
        parts = apart(chunk, damage)
    except UnreadableError as error:
        if not skips_bad_batches:
            raise
        log_skipped(error)
        return True
    except CorruptBatch as error:
        streams.send_again(chunk.feed, error)
    else:
        streams.queue.popleft()
        streams.queue.extendleft(reversed(parts))
    return False
