"""Implements an iterator client: single calls, and a loop that reads all partitions that the client owns.

Invariants of the loop:

- Each partition has either one reader task or one fetched batch, never both. So memory is bounded by the number of
  partitions that the client owns.
- Each partition that was read has one feed, which keeps its leader from read to read. A topic is missing, and is tried
  again, as for every other owner of feeds (see `millstream.sdk.feed.feed_set`).
- A delivered batch is committed before the next one is delivered. If its iterator is not valid any more, the commit is
  dropped, and the messages are delivered again to the new owner of the partition.
- A batch is committed only after the caller has confirmed it as received. An interrupted call may not return its batch;
  the next call then returns it again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.outage import ConnectionHealth
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.feed_set import FeedSet
from millstream.sdk.feed.partition_feed import MISSING, READS_ON, PartitionFeed
from millstream.sdk.iterating.call_engine import OVER, IteratorCallEngine, IteratorRequest
from millstream.sdk.iterating.requests import (
    GroupIterator,
    IteratorBatch,
    IteratorCommit,
    IteratorMembership,
    ListedIterator,
)
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight
from millstream.seams.entropy import Entropy

TIMEOUT_S = 30.0
WAIT_S = 5.0
"""The longest wait of one read request of the loop for the first message."""

UNSETTLED_S = 0.25
"""The heartbeat interval while the group's rebalance is not complete."""

CLOSE_S = 3.0

_EVER_S = 1e9
_NO_TOPICS = "this iterator client has no topics to read; without topics only get() works"

log = logging.getLogger("millstream.sdk.iterators")


class IteratorEngineSettings(NamedTuple):
    group_id: str
    client_id: str
    topics: Sequence[str]
    max_bytes: int
    iterator: IteratorRequest
    skips_bad_batches: bool = False


class IteratorEngine:
    def __init__(self, asking: RetryingCaller, settings: IteratorEngineSettings) -> None:
        self.membership: IteratorMembership | None = None
        """The coordinator's last answer; None before the client has joined."""
        self._asking = asking
        self._settings = settings
        self._calls = IteratorCallEngine(asking)
        self._beating: asyncio.Task[None] | None = None
        self._readers: dict[TopicPartition, asyncio.Task[IteratorBatch]] = {}
        self._next: dict[TopicPartition, GroupIterator] = {}
        self._feeds = FeedSet(asking, READS_ON, reads_others=True)
        """The feeds of the partitions that were read, and of the first partition of each topic."""
        self._delivered: IteratorBatch | None = None
        """The batch that the last call returned, or would have returned if it had not been interrupted."""
        self._finished: tuple[IteratorBatch, int | None] | None = None
        """The batch that is being committed, and the number of its messages to commit (None: all)."""
        self._settling = SingleFlight(self._commit_finished, "commit of a batch")
        self._failure: MillstreamError | None = None
        self._ready: deque[IteratorBatch] = deque()
        self._news = asyncio.Event()
        self._starting = self._new_start()

    # Single calls.

    def health(self) -> ConnectionHealth:
        """Return the state of the client's connections, and missing topics."""
        return self._asking.cluster.health().with_missing(sorted(self._feeds.missing_topics))

    @property
    def _names(self) -> tuple[str, str]:
        return self._settings.group_id, self._settings.client_id

    async def join(self, timeout_s: float = TIMEOUT_S) -> IteratorMembership:
        """Join the group, or confirm the membership; heartbeats then run in the background."""
        self._set_membership(await self._calls.join(*self._names, timeout_s))
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._heartbeat())
        return self._joined

    async def heartbeat(self, timeout_s: float = TIMEOUT_S) -> IteratorMembership:
        self._set_membership(await self._calls.heartbeat(*self._names, timeout_s))
        return self._joined

    async def leave(self, timeout_s: float = TIMEOUT_S) -> None:
        """Leave the group. The next request of another member gets the partitions.

        A waiting poll gets them at its next heartbeat.
        """
        await self._stop()
        await self._calls.leave(*self._names, timeout_s)

    async def get(self, where: TopicPartition, timeout_s: float = TIMEOUT_S) -> GroupIterator:
        return await self._calls.get(*self._names, where, self._settings.iterator, timeout_s)

    async def in_flight(self, everybody: bool, timeout_s: float = TIMEOUT_S) -> list[ListedIterator]:
        client_id = None if everybody else self._settings.client_id
        return await self._calls.in_flight(self._settings.group_id, client_id, timeout_s)

    async def read(self, iterator: GroupIterator, wait_s: float) -> IteratorBatch:
        """Read an iterator's messages from the leader that the partition's feed knows."""
        self._raise_failure()
        settings, feed = self._settings, self._feed(TopicPartition(iterator.topic, iterator.partition))
        batch = await self._calls.read(
            iterator, settings.max_bytes, TIMEOUT_S, wait_s, skips_bad_batches=settings.skips_bad_batches, feed=feed
        )
        self._feeds.found(feed.where)
        return batch

    def _feed(self, where: TopicPartition) -> PartitionFeed:
        return self._feeds[where] if where in self._feeds else self._feeds.add(where, 0, NO_TOPIC_ID)

    async def commit(self, iterator: GroupIterator, count: int, timeout_s: float = TIMEOUT_S) -> IteratorCommit:
        self._raise_failure()
        return await self._calls.commit(*self._names, iterator, count, timeout_s)

    # The loop.

    async def start(self) -> None:
        """Join the group and request one iterator of each topic, which makes the client a reader of the topic."""
        await self._starting.wait()

    def _new_start(self) -> SharedStart:
        return SharedStart(self._start, "start of a client of iterators")

    async def _start(self) -> None:
        await self.join()
        for topic in self._settings.topics:
            where = self._feed(TopicPartition(topic, 0)).where
            try:
                self._next[where] = await self.get(where)
            except MillstreamError as error:
                if error.code not in OVER and not (error.code in MISSING and topic in self._feeds.missing_topics):
                    raise
        await self.heartbeat()

    async def next_batch(self, timeout_s: float | None, received: IteratorBatch | None) -> IteratorBatch | None:
        """Return the next messages of any partition; None after the timeout.

        First commits `received`, the last batch that reached the caller, unless that was done. Returns the previous
        batch again if it did not reach the caller. Raises INVALID_REQUEST if the client has no topics.
        """
        if not self._settings.topics:
            raise MillstreamError(ErrorCode.INVALID_REQUEST, _NO_TOPICS)
        deadline = None if timeout_s is None else Deadline(timeout_s)
        if not await self._starting.wait_until(deadline) or not await self.settle(received, None, deadline):
            return None
        if self._delivered is not None:
            return self._delivered
        try:
            async with asyncio.timeout(None if deadline is None else deadline.left_s):
                while True:
                    self._raise_failure()
                    self._read_what_is_owned()
                    for where in [where for where, reader in self._readers.items() if reader.done()]:
                        self._take(where, self._readers.pop(where))
                    if self._ready:
                        assert self._delivered is None, "the delivered batch is committed before the next one"
                        self._delivered = self._ready.popleft()
                        return self._delivered
                    await self._wait_for_news()
        except TimeoutError:
            return None

    async def _wait_for_news(self) -> None:
        """Wait until a reader is done, the membership has changed, or the next missing partition is due."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._feeds.due_s):
                await self._news.wait()

    async def settle(
        self, received: IteratorBatch | None, read: int | None = None, deadline: Deadline | None = None
    ) -> bool:
        """Commit the first `read` messages (None: all) of the last received batch, unless that was done.

        Returns false if the deadline passes first; the commit then continues, and the next call waits for it.
        """
        if received is not None and self._delivered is received:
            self._finished, self._delivered = (received, read), None
        if self._finished is None:
            return True
        settled = await self._settling.wait(deadline)
        if settled is None:
            return False
        self._finished = None
        settled.result()
        return True

    async def _commit_finished(self) -> None:
        assert self._finished is not None, "there is a batch to commit"
        batch, read = self._finished
        try:
            done = await self.commit(batch.iterator, batch.places(read))
        except MillstreamError as error:
            if error.code not in OVER and error.code not in MISSING:
                raise
            log.info(LogEvent("commit dropped, the iterator has ended", **_where(batch)._asdict(), error=error))
        else:
            if done.following is not None:
                self._next[_where(batch)] = done.following

    def _read_what_is_owned(self) -> None:
        self._feeds.look()
        busy = {_where(batch) for batch in (*self._ready, *filter(None, [self._delivered]))}
        assert self._readers.keys().isdisjoint(busy), "a partition has a reader or a fetched batch"
        for where in self._joined.owned:
            is_wanted = where.topic in self._settings.topics and self._feeds.may_retry(self._feed(where))
            if is_wanted and where not in self._readers and where not in busy:
                reader = asyncio.get_running_loop().create_task(self._reader_while_there(where))
                reader.add_done_callback(lambda _: self._news.set())
                self._readers[where] = reader

    async def _reader_while_there(self, where: TopicPartition) -> IteratorBatch:
        """Run `_reader`; if the topic was recreated without this partition, raise NOT_OWNER."""
        try:
            return await self._reader(where)
        except MillstreamError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise await _missing_partition(self._asking, where) from error

    async def _reader(self, where: TopicPartition) -> IteratorBatch:
        """Read one partition until there is a message.

        Raises errors that a retry cannot fix, and those of a partition that the client does not own any more.
        """
        iterator = self._next.pop(where, None)
        attempts = _endless_attempts(self._asking.entropy)
        while True:
            iterator = iterator or await self.get(where)
            try:
                batch = await self.read(iterator, WAIT_S)
            except MillstreamError as error:
                if error.code not in OVER and error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                    raise
                iterator = None
                await attempts.pause()
                continue
            if batch.messages:
                return batch
            iterator = batch.following
            attempts = _endless_attempts(self._asking.entropy)

    def _take(self, where: TopicPartition, reader: "asyncio.Task[IteratorBatch]") -> None:
        if reader.cancelled():
            return
        error = reader.exception()
        if error is None:
            self._ready.append(reader.result())
        elif isinstance(error, MillstreamError) and error.code in MISSING:
            self._feeds.failed([self._feed(where)], error)
            self._raise_failure()
        elif not isinstance(error, MillstreamError) or error.code not in OVER:
            raise error
        elif self.membership is not None:
            # The client lost the partition; it is read again once the coordinator assigns it again.
            owned = tuple(each for each in self.membership.owned if each != where)
            self.membership = self.membership._replace(owned=owned, is_settled=False)

    async def _heartbeat(self) -> None:
        """Send heartbeats; if the coordinator has removed the client, join again."""
        while True:
            membership = self._joined
            await asyncio.sleep(membership.heartbeat_s if membership.is_settled else UNSETTLED_S)
            try:
                await self._beat_once(membership.session_s)
            except MillstreamError as error:
                log.info(LogEvent("heartbeat failed", group=self._settings.group_id, error=error))  # Retried.
            except Exception as error:
                self._failure = client_failed(log, "a heartbeat", error)
                self._news.set()

    async def _beat_once(self, timeout_s: float) -> None:
        try:
            await self.heartbeat(timeout_s)
        except MillstreamError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            self._next.clear()
            await self._start()

    def _raise_failure(self) -> None:
        """Raise an unexpected error of the heartbeat task, or the error of a missing topic, once."""
        failure, self._failure = self._failure or self._feeds.take_failure(), None
        if failure is not None:
            raise failure

    @property
    def _joined(self) -> IteratorMembership:
        if self.membership is None:
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, "join the group first")
        return self.membership

    def _set_membership(self, membership: IteratorMembership) -> None:
        self.membership = membership
        self._news.set()

    async def close(self, finished: IteratorBatch | None = None) -> None:
        """Leave the group; first commit the batch `finished`. Errors are ignored: the session expires."""
        deadline = Deadline(CLOSE_S)
        try:
            if finished is not None:
                with suppress(MillstreamError):
                    await self.settle(finished, None, deadline)
            if self._beating is not None:
                with suppress(MillstreamError):
                    await self.leave(deadline.left_s)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        await self._starting.close()
        await self._settling.close()
        self._finished = self._delivered = None  # The messages are delivered again to the partition's next owner.
        self._starting = self._new_start()
        tasks = [*self._readers.values(), *filter(None, [self._beating])]
        self._readers, self._beating = {}, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _missing_partition(asking: RetryingCaller, where: TopicPartition) -> MillstreamError:
    """Return the error for a partition that does not exist any more; raises the topic's error if it does not exist."""
    asking.cluster.forget(where.topic)
    await asking.cluster.topic(where.topic, Deadline(TIMEOUT_S))
    return MillstreamError(ErrorCode.NOT_OWNER, f"{where} does not exist any more")


def _endless_attempts(entropy: Entropy) -> Attempts:
    return Attempts(entropy, Deadline(_EVER_S))


def _where(batch: IteratorBatch) -> TopicPartition:
    return TopicPartition(batch.iterator.topic, batch.iterator.partition)
