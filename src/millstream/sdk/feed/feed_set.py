"""Drives the feeds of one owner: looks up leaders, backs off after failures, and reports feeds that give up.

Invariant: every feed that has failed or waited since its last answer is in `_delayed`. The other feeds are healthy. An
owner that asks a leader by itself reports the outcome afterwards, with `answered` or `failed`.
"""

import asyncio
import logging
from collections.abc import Collection, Container, Iterable, Iterator

from millstream.model.errors import MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.retry_policy import Deadline, chance
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_call import ask_partitions
from millstream.sdk.feed.leader_lookup import find_leaders, report_failure
from millstream.sdk.feed.partition_feed import MISSING, FeedRules, LogRange, PartitionFeed, RangeOutcome
from millstream.sdk.requests import BEGINNING, LATEST

LOOK_UP_S = 10.0
STABLE_S = 5.0
"""A push source that was open for this long has worked."""

_log = logging.getLogger("millstream.sdk.consumer")


class FeedSet:
    """The feeds of one owner, by partition.

    If `reads_others` is true, a missing topic is a failure only when no other topic can be read.
    """

    def __init__(self, asking: RetryingCaller, rules: FeedRules, *, reads_others: bool = False) -> None:
        self.failure: MillstreamError | None = None
        """The first error of a feed that gave up; the owner takes it with `take_failure`."""
        self._asking = asking
        self._cluster = asking.cluster
        self._rules = rules
        self._reads_others = reads_others
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[TopicPartition, PartitionFeed] = {}
        self._delayed: dict[TopicPartition, PartitionFeed] = {}
        self._logged: set[str] = set()
        """The missing topics that were logged since they last existed."""
        self._looked_s = 0.0
        """The time of the last `look`, which decides the feeds that are due."""

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[PartitionFeed]:
        return iter(self._feeds.values())

    def __contains__(self, where: TopicPartition) -> bool:
        return where in self._feeds

    def __getitem__(self, where: TopicPartition) -> PartitionFeed:
        return self._feeds[where]

    def add(self, where: TopicPartition, offset: int, topic_id: TopicId) -> PartitionFeed:
        """Add a feed for this partition; it replaces an existing one."""
        self.remove(where)
        feed = self._feeds[where] = PartitionFeed(where, offset, topic_id, self._rules)
        return feed

    def remove(self, where: TopicPartition) -> None:
        self._feeds.pop(where, None)
        self._delayed.pop(where, None)

    def clear(self) -> None:
        self._feeds.clear()
        self._delayed.clear()

    # Failures.

    @property
    def trouble(self) -> PartitionFeed | None:
        """The feed that has been failing for the longest time; None if no feed fails.

        A missing topic is no trouble while other topics are read.
        """
        failing = [feed for feed in self._delayed.values() if feed.error is not None and not feed.is_paused]
        if self.missing is None:
            failing = [feed for feed in failing if not feed.is_missing]
        return min(failing, key=lambda feed: feed.failing_since_s, default=None)

    @property
    def missing(self) -> MillstreamError | None:
        """The error of a missing topic that prevents reading; None if all topics exist, or others are read."""
        wanted = (feed for feed in self._delayed.values() if not feed.is_paused)
        error = next((feed.error for feed in wanted if feed.is_missing), None)
        return None if error is None or self._has_others(self.missing_topics) else error

    @property
    def missing_topics(self) -> list[str]:
        """The topics that should be read and do not exist."""
        missing = (feed for feed in self._delayed.values() if feed.is_missing and not feed.is_paused)
        return list(dict.fromkeys(feed.where.topic for feed in missing))

    def _has_others(self, missing_topics: Collection[str]) -> bool:
        """True if the owner goes on with a topic that is not one of these."""
        feeds = self._feeds.values()
        return self._reads_others and any(
            not feed.is_paused and feed.where.topic not in missing_topics for feed in feeds
        )

    def take_failure(self) -> MillstreamError | None:
        """Return and clear the error of a feed that gave up; all feeds then retry after their backoff."""
        failure, self.failure = self.failure, None
        if failure is not None:
            for feed in self._delayed.values():
                feed.retry()
        return failure

    def give_up(self, error: MillstreamError) -> None:
        """Set the failure, unless there is one already."""
        self.failure = self.failure or error

    def pause(self, feed: PartitionFeed) -> None:
        """Pause a feed. If the failure is only that its topic is missing, the failure is cleared."""
        feed.pause()
        if feed.is_missing and self.missing is None and self.failure is not None and self.failure.code in MISSING:
            self.failure = None

    # Due feeds.

    def look(self) -> None:
        """Take the current time as the reference of `is_ready`, `ready_again`, `may_retry`, `due_s`, `find_leaders`."""
        self._looked_s = self._loop.time()

    @property
    def due_s(self) -> float | None:
        """The time at which the next feed becomes due after the last look; None for never."""
        times_s = (feed.retry_at_s for feed in self._delayed.values() if not feed.is_paused)
        return min((time_s for time_s in times_s if time_s > self._looked_s), default=None)

    def is_ready(self, feed: PartitionFeed) -> bool:
        """True if the feed could be fetched at the last look."""
        return feed.is_ready(self._looked_s)

    def may_retry(self, feed: PartitionFeed) -> bool:
        """True unless the backoff of a reported failure delayed the feed at the last look."""
        return feed.where not in self._delayed or feed.retry_at_s <= self._looked_s

    def ready_again(self) -> list[PartitionFeed]:
        """Return the delayed feeds that can be fetched again."""
        return [feed for feed in self._delayed.values() if feed.is_ready(self._looked_s)]

    async def find_leaders(self) -> list[PartitionFeed]:
        """Look up the leaders of due feeds; returns the feeds without a leader, which then back off or give up."""
        leaderless = [feed for feed in self._feeds.values() if feed.leader is None and not feed.is_paused]
        due = [feed for feed in leaderless if feed.retry_at_s <= self._looked_s and not feed.gives_up]
        if not due:
            return []
        assert all(feed.error is None or feed.where in self._delayed for feed in due), "a failed feed is delayed"
        await find_leaders(self._asking, due, Deadline(LOOK_UP_S))
        failed = [feed for feed in due if feed.leader is None]
        self._note_delayed(failed)
        return failed

    # Outcomes.

    def answered(self, requested: Container[TopicPartition], refused: Container[TopicPartition]) -> None:
        """Reset the delay of all feeds that were requested and not refused."""
        for where, feed in list(self._delayed.items()):
            if where in requested and where not in refused:
                feed.answered()
                del self._delayed[where]
                self._logged.discard(where.topic)

    def found(self, where: TopicPartition) -> None:
        """Reset the delay of a feed whose leader has answered, and of all feeds for which its topic was missing."""
        delayed = self._delayed.items()
        missing = [each for each, feed in delayed if each.topic == where.topic and feed.is_missing]
        self.answered([where, *missing], ())

    def failed(self, feeds: Collection[PartitionFeed], error: MillstreamError) -> None:
        """Report one error to several feeds, which then back off for the same time."""
        now_s, spread = self._loop.time(), chance(self._asking.entropy)
        for feed in feeds:
            report_failure(self._asking, feed, error, now_s, spread)
        self._note_delayed(feeds)

    def source_lost(self, places: Collection[TopicPartition], error: MillstreamError, opened_s: float) -> None:
        """Report that the push source of these partitions, which was opened at `opened_s`, has failed.

        If it was open for STABLE_S, the failure is not a repeated one, and the backoff begins again.
        """
        if self._loop.time() - opened_s >= STABLE_S:
            self.answered(places, ())
        self.failed([self._feeds[where] for where in places if where in self._feeds], error)

    async def find_range(self, feed: PartitionFeed) -> RangeOutcome:
        """Look up the leader's offsets after OFFSET_OUT_OF_RANGE, and apply them to the feed."""
        requested = feed.offset
        try:
            found = await log_range(self._asking, feed.where, Deadline(LOOK_UP_S))
        except MillstreamError as error:
            self.failed([feed], error)
            return RangeOutcome.FAILED
        outcome = RangeOutcome.WAITS
        if feed.offset == requested:
            outcome = feed.out_of_range(found, self._loop.time(), chance(self._asking.entropy))
            self._note_delayed([feed])
        return outcome

    def _note_delayed(self, feeds: Iterable[PartitionFeed]) -> None:
        for feed in feeds:
            if self._feeds.get(feed.where) is feed:
                self._delayed[feed.where] = feed
                if feed.gives_up and feed.error is not None:
                    self._give_up(feed, feed.error)

    def _give_up(self, feed: PartitionFeed, error: MillstreamError) -> None:
        """Report the error of a feed; if only its topic is missing and others are read, log it once and retry."""
        topics = self.missing_topics
        if not feed.is_missing or not self._has_others(topics):
            self.give_up(error)
            return
        feed.retry()
        if feed.where.topic not in self._logged:
            _log.warning('topic missing, reading the others topic=%s error="%s"', feed.where.topic, error.detail)
        self._logged.add(feed.where.topic)


async def log_range(asking: RetryingCaller, where: TopicPartition, deadline: Deadline) -> LogRange:
    """Fetch the partition's start and end offset from its leader."""
    start = (await ask_partitions(asking, {where: BEGINNING}, requests.list_offsets, deadline))[where].offset
    end = (await ask_partitions(asking, {where: LATEST}, requests.list_offsets, deadline))[where].offset
    return LogRange(start, end)
