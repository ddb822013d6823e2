"""Sends requests to the leaders of partitions, with retries, for callers that keep no feed between two calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import ATTEMPT_MIN_S, Deadline, chance
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.feed.leader_lookup import find_leaders, report_failure
from millstream.sdk.feed.partition_feed import FeedPosition, FetchAt, FindLeader, GiveUp, PartitionFeed
from millstream.wire.client_connection import ApiRequest

T = TypeVar("T")

Answers = Mapping[TopicPartition, T | MillstreamError]

PLACES_AT_ONCE = 500
"""Number of partitions per step; the event loop can run other tasks between steps."""

_LATE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)

_log = logging.getLogger("millstream.sdk.retrying")


async def ask_leader(
    caller: RetryingCaller, feed: PartitionFeed, ask: Callable[[FetchAt], Awaitable[T]], deadline: Deadline
) -> T:
    """Return the first response of the feed's leader. Raises what `ask_leaders` raises."""

    async def ask_one(leader: Address, positions: Mapping[TopicPartition, FeedPosition]) -> Answers[T]:
        return {feed.where: await ask(FetchAt(leader, positions[feed.where]))}

    return (await ask_leaders(caller, [feed], ask_one, deadline))[feed.where]


async def ask_partitions(
    caller: RetryingCaller,
    numbers: Mapping[TopicPartition, int],
    request: Callable[[Mapping[TopicPartition, int]], ApiRequest[dict[TopicPartition, T | MillstreamError]]],
    deadline: Deadline,
) -> dict[TopicPartition, T]:
    """Send a request for each partition, with its number, to its leader. Raises what `ask_leaders` raises."""
    cluster, found, partitions = caller.cluster, dict[TopicPartition, T](), list(numbers)

    async def ask(leader: Address, positions: Mapping[TopicPartition, FeedPosition]) -> Answers[T]:
        connection = await cluster.to(leader, deadline)
        share = {where: numbers[where] for where in positions}
        return await connection.request(request(share), cluster.timeout_s(deadline))

    for at in range(0, len(partitions), PLACES_AT_ONCE):
        feeds = [PartitionFeed(where, 0) for where in partitions[at : at + PLACES_AT_ONCE]]
        found |= await ask_leaders(caller, feeds, ask, deadline)
    return found


async def ask_leaders(
    caller: RetryingCaller,
    feeds: Collection[PartitionFeed],
    ask: Callable[[Address, Mapping[TopicPartition, FeedPosition]], Awaitable[Answers[T]]],
    deadline: Deadline,
) -> dict[TopicPartition, T]:
    """Send a request to the leader of each feed; returns the first response for each partition.

    Feeds with the same leader share a request. Only the partitions that fail are requested again. Raises the error with
    which a feed gives up, or the last failure at the deadline. If that failure is only a timeout near the deadline, an
    earlier failure is raised instead.
    """
    loop = asyncio.get_running_loop()
    found: dict[TopicPartition, T] = {}
    reasons: dict[TopicPartition, MillstreamError] = {}
    pending = {feed.where: feed for feed in feeds}
    while pending:
        leaderless, by_leader = _due(pending.values(), loop.time())
        if leaderless:
            await find_leaders(caller, leaderless, deadline)
        for leader, share in by_leader.items():
            for where, answer in (await _ask_share(caller, leader, share, ask)).items():
                found[where] = answer
                del pending[where]
        if not leaderless and not by_leader:
            await _back_off(caller, pending.values(), reasons, deadline)
    return {feed.where: found[feed.where] for feed in feeds}


def _due(
    feeds: Iterable[PartitionFeed], now_s: float
) -> tuple[list[PartitionFeed], dict[Address, list[PartitionFeed]]]:
    """Return the feeds whose leader must be looked up, and the feeds that can be requested now, by leader.

    Raises the error of a feed that gives up.
    """
    leaderless: list[PartitionFeed] = []
    by_leader: dict[Address, list[PartitionFeed]] = {}
    for feed in feeds:
        match feed.step(now_s):  # Thousands of feeds pass here at once, and a match calls no function.
            case GiveUp() as step:
                raise step.error
            case FindLeader():
                leaderless.append(feed)
            case FetchAt() as step:
                by_leader.setdefault(step.leader, []).append(feed)
    return leaderless, by_leader


async def _ask_share(
    caller: RetryingCaller,
    leader: Address,
    feeds: Sequence[PartitionFeed],
    ask: Callable[[Address, Mapping[TopicPartition, FeedPosition]], Awaitable[Answers[T]]],
) -> dict[TopicPartition, T]:
    """Send one request; returns the responses and reports the failures. Raises the error of a feed that gives up."""
    answers: Answers[T]
    if len(feeds) > PLACES_AT_ONCE:
        await asyncio.sleep(0)  # Sorting them by leader and encoding the request are two steps of the event loop.
    try:
        answers = await ask(leader, {feed.where: feed.position for feed in feeds})
    except MillstreamError as error:
        answers = dict.fromkeys((feed.where for feed in feeds), error)
    found: dict[TopicPartition, T] = {}
    now_s, spread = asyncio.get_running_loop().time(), chance(caller.entropy)
    for feed in feeds:
        answer = answers[feed.where]
        if not isinstance(answer, MillstreamError):
            found[feed.where] = answer
            continue
        report_failure(caller, feed, answer, now_s, spread)
        if feed.gives_up:
            raise answer
    return found


async def _back_off(
    caller: RetryingCaller,
    feeds: Collection[PartitionFeed],
    reasons: dict[TopicPartition, MillstreamError],
    deadline: Deadline,
) -> None:
    """Wait until a feed is due; raises the reason of the first failure if too little time is left after that."""
    is_over = deadline.left_s < ATTEMPT_MIN_S
    for feed in feeds:
        assert feed.error is not None, "a feed waits after a failure"
        if not (is_over and feed.error.code in _LATE and feed.where in reasons):
            reasons[feed.where] = feed.error
    first = min(feeds, key=lambda feed: feed.retry_at_s)
    wait_s = first.retry_at_s - asyncio.get_running_loop().time()
    if wait_s + ATTEMPT_MIN_S >= deadline.left_s:
        raise reasons[first.where]
    assert first.error is not None, "a feed waits after a failure"
    _log.debug(LogEvent("request retried", **first.where._asdict(), error=first.error))
    caller.metrics.count("retries", 1, {"error": first.error.code.name})
    await asyncio.sleep(max(0.0, wait_s))
