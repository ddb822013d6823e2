"""Tests that a feed set looks up leaders together, backs off after failures, and reports each lost feed once."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from builders.sdk.feeds import caller, lookups
from builders.sdk.scripted_broker import PORT, Cut, Fault, Late, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import BACKOFF_FIRST_S, BACKOFF_MAX_S, FEW_ATTEMPTS
from millstream.sdk.feed import leader_lookup
from millstream.sdk.feed.feed_set import STABLE_S, FeedSet
from millstream.sdk.feed.partition_feed import READS_ON, FeedRules, PartitionFeed, RangeOutcome
from millstream.sdk.responses import NotLeaderError

WAITS_FOR_TOPICS = FeedRules(missing_attempts=None)
ONCE = FeedRules(missing_attempts=1)
ORDERS = TopicPartition("orders", 0)
OLD_ID, NEW_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))
LOST = MillstreamError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")


def feeds_of(scene: Scene, *places: TopicPartition, rules: FeedRules = READS_ON) -> FeedSet:
    feeds = FeedSet(caller(scene), rules)
    for where in places:
        feeds.add(where, 0, NO_TOPIC_ID)
    return feeds


async def look(feeds: FeedSet) -> list[PartitionFeed]:
    feeds.look()
    return await feeds.find_leaders()


async def wait_until_due(feeds: FeedSet) -> None:
    due_s = feeds.due_s
    assert due_s is not None, "a feed waits"
    await asyncio.sleep(due_s - asyncio.get_running_loop().time())


def assert_all_well(feeds: FeedSet) -> None:
    """Assert that no feed fails or waits, and that there is no failure to report."""
    assert (feeds.trouble, feeds.missing) == (None, None)
    assert (feeds.due_s, feeds.failure) == (None, None)


@pytest.mark.parametrize(("per_request", "requests"), [(1_000, 1), (20, 3)])
def test_leaders_of_many_topics_are_looked_up_together(
    per_request: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_lookup, "TOPICS_PER_REQUEST", per_request)

    async def body(scene: Scene) -> None:
        for number in range(50):
            scene.cluster.topic(f"t{number}", 2)[1].leader = 2
        feeds = feeds_of(scene, *(TopicPartition(f"t{number}", row) for number in range(50) for row in (0, 1)))
        assert await look(feeds) == []
        assert lookups(scene) == requests
        leaders = {feed.where.partition: feed.leader for feed in feeds}
        assert leaders == {0: Address("broker1", PORT), 1: Address("broker2", PORT)}
        assert all(feeds.is_ready(feed) for feed in feeds)

    play(body, nodes=2)


def test_a_cached_leader_needs_no_request() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders", 2)
        feeds = feeds_of(scene, ORDERS)
        await look(feeds)
        feeds.add(TopicPartition("orders", 1), 0, NO_TOPIC_ID)
        assert await look(feeds) == []
        assert lookups(scene) == 1

    play(body)


def test_a_feed_without_a_leader_delays_no_other() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders", 3)[1].leader = -1
        feeds = feeds_of(scene, *(TopicPartition("orders", number) for number in range(3)))
        other, failing, paused = feeds
        feeds.pause(paused)
        assert await look(feeds) == [failing]
        assert (feeds.is_ready(other), feeds.is_ready(failing), feeds.is_ready(paused)) == (True, False, False)
        assert paused.leader is None, "the leader of a paused partition is not looked up"
        assert feeds.trouble is failing
        assert feeds.due_s == failing.retry_at_s == asyncio.get_running_loop().time() + BACKOFF_FIRST_S
        assert feeds.failure is None
        assert await look(feeds) == []
        assert lookups(scene) == 1, "nothing is looked up before the backoff is over"
        scene.cluster.topics["orders"][1].leader = 1
        await wait_until_due(feeds)
        assert await look(feeds) == []
        assert feeds.ready_again() == [failing]
        feeds.answered({failing.where}, ())
        assert not feeds.ready_again()
        assert_all_well(feeds)

    play(body)


def test_backoff_doubles_up_to_its_maximum_and_an_answer_resets_it() -> None:
    async def body(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        scene.cluster.topic("orders")[0].leader = -1
        feeds = feeds_of(scene, ORDERS)
        waits = []
        for _ in range(8):
            await look(feeds)
            waits.append(round((feeds.due_s or 0.0) - loop.time(), 6))
            await wait_until_due(feeds)
        assert waits == [round(min(BACKOFF_FIRST_S * 2**number, BACKOFF_MAX_S), 6) for number in range(8)]
        feeds.answered({ORDERS}, {ORDERS})
        assert feeds.trouble is not None, "a refusal does not reset the feed"
        feeds.answered({ORDERS}, ())
        assert feeds.due_s is None
        await look(feeds)
        assert round((feeds.due_s or 0.0) - loop.time(), 6) == BACKOFF_FIRST_S

    play(body)


def test_feeds_that_fail_together_share_one_retry_time_and_leader_lookup() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders", 10)
        feeds = feeds_of(scene, *(TopicPartition("orders", number) for number in range(10)))
        await look(feeds)
        feeds.failed(list(feeds), LOST)
        assert len({feed.retry_at_s for feed in feeds}) == 1
        asked = lookups(scene)
        await wait_until_due(feeds)
        assert await look(feeds) == []
        assert lookups(scene) == asked + 1
        assert feeds.ready_again() == list(feeds)

    play(body)


def test_a_refusal_that_names_a_newer_leader_needs_no_lookup() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        feeds = feeds_of(scene, ORDERS)
        await look(feeds)
        refused = MillstreamError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "refused")
        feeds.failed(list(feeds), NotLeaderError(refused, leader_id=2, leader_epoch=5))
        feeds.look()
        assert [feed.leader for feed in feeds.ready_again()] == [Address("broker2", PORT)]
        assert await look(feeds) == []
        assert lookups(scene) == 1
        feeds.failed(list(feeds), NotLeaderError(refused, leader_id=1, leader_epoch=5))
        feeds.look()
        assert feeds.ready_again() == [], "a leader of the same epoch is not used"

    play(body, nodes=2)


@pytest.mark.parametrize(("rules", "attempts"), [(ONCE, 1), (READS_ON, FEW_ATTEMPTS)])
def test_a_recreated_topic_is_reported_once(rules: FeedRules, attempts: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        scene.cluster.topic_ids["orders"] = OLD_ID
        feeds = FeedSet(caller(scene), rules)
        feed = feeds.add(ORDERS, 0, OLD_ID)
        assert await look(feeds) == []
        scene.cluster.topic_ids["orders"] = NEW_ID
        feeds.failed([feed], LOST)
        for _ in range(attempts):
            assert feeds.failure is None
            await wait_until_due(feeds)
            assert await look(feeds) == [feed]
        assert feeds.missing is feed.error
        asked = lookups(scene)
        await asyncio.sleep(10.0)
        assert await look(feeds) == []
        assert lookups(scene) == asked, "there is no further lookup until the failure is taken"
        failure = feeds.take_failure()
        assert failure is not None
        assert failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "created again" in failure.detail
        assert feeds.take_failure() is None

    play(body)


def test_a_failure_of_a_missing_topic_is_withdrawn_when_its_feed_is_paused() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.auto_create = False
        feeds = feeds_of(scene, ORDERS, rules=ONCE)
        (feed,) = await look(feeds)
        assert feeds.failure is not None
        feeds.pause(feed)
        assert_all_well(feeds)

    play(body)


def test_a_cancelled_lookup_leaves_the_feeds_unchanged() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        scene.cluster.then("Metadata", Late(1.0))
        feeds = feeds_of(scene, ORDERS)
        lookup = asyncio.create_task(look(feeds))
        await asyncio.sleep(0.5)
        lookup.cancel()
        await asyncio.gather(lookup, return_exceptions=True)
        assert lookup.cancelled()
        assert_all_well(feeds)
        assert await look(feeds) == []
        assert feeds.is_ready(feeds[ORDERS])

    play(body)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_feed_that_is_removed_during_its_lookup_is_not_reported(is_replaced: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.auto_create = False
        scene.cluster.then("Metadata", Late(1.0))
        feeds = feeds_of(scene, ORDERS, rules=ONCE)
        lookup = asyncio.create_task(look(feeds))
        await asyncio.sleep(0.5)
        feeds.clear()
        if is_replaced:
            feeds.add(ORDERS, 5, NO_TOPIC_ID)
        assert [feed.gives_up for feed in await lookup] == [True]
        assert_all_well(feeds)
        assert [feed.error for feed in feeds] == [None] * is_replaced

    play(body)


def _no_leader(scene: Scene) -> None:
    scene.cluster.topics["orders"][0].leader = -1


def _leader_not_described(scene: Scene) -> None:
    scene.cluster.topics["orders"][0].leader = 9


def _topic_not_there(scene: Scene) -> None:
    scene.cluster.auto_create = False
    del scene.cluster.topics["orders"]


def _every_answer(fault: Fault) -> Callable[[Scene], None]:
    def spoil(scene: Scene) -> None:
        scene.cluster.then("Metadata", *[fault] * 1_000)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        _no_leader,
        _leader_not_described,
        _topic_not_there,
        _every_answer(Refuse(ErrorCode.LEADER_NOT_AVAILABLE)),
        _every_answer(Cut(after=False)),
    ],
)
def test_lookups_without_a_leader_never_become_a_busy_loop(spoil: Callable[[Scene], None]) -> None:
    time_s = 60.0

    async def body(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        scene.cluster.topic("orders")
        spoil(scene)
        feeds = feeds_of(scene, ORDERS, rules=WAITS_FOR_TOPICS)
        end_s, steps = loop.time() + time_s, scene.loop.steps
        rounds = 0
        while loop.time() < end_s:
            assert len(await look(feeds)) <= 1
            rounds += 1
            await wait_until_due(feeds)
        assert time_s / BACKOFF_MAX_S <= lookups(scene) <= time_s / BACKOFF_MAX_S + 10
        assert rounds <= lookups(scene) + 1
        assert scene.loop.steps - steps <= 100 * rounds

    play(body)


@pytest.mark.parametrize(
    ("offset", "rules", "outcome", "next_offset"),
    [
        (3, FeedRules(moves_on=True), RangeOutcome.MOVED, 10),
        (99, FeedRules(moves_on=True, waits_beyond_end=False), RangeOutcome.MOVED, 10),
        (99, READS_ON, RangeOutcome.WAITS, 99),
        (3, READS_ON, RangeOutcome.FAILED, 3),
    ],
)
def test_an_offset_out_of_range_is_handled_by_the_feed_rules(
    offset: int, rules: FeedRules, outcome: RangeOutcome, next_offset: int
) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")[0].start = 10
        feeds = FeedSet(caller(scene), rules)
        feed = feeds.add(ORDERS, offset, NO_TOPIC_ID)
        await look(feeds)
        assert await feeds.find_range(feed) is outcome
        assert feed.offset == next_offset
        failure = feeds.take_failure()
        assert (failure is not None) == (outcome is RangeOutcome.FAILED)
        assert failure is None or failure.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (feeds.due_s is None) == (outcome is RangeOutcome.MOVED)

    play(body)


def test_a_seek_overrides_a_range_lookup_in_flight() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")[0].start = 10
        scene.cluster.then("ListOffsets", Late(1.0))
        feeds = FeedSet(caller(scene), READS_ON)
        feed = feeds.add(ORDERS, 3, NO_TOPIC_ID)
        lookup = asyncio.create_task(feeds.find_range(feed))
        await asyncio.sleep(0.5)
        feed.seek(12)
        assert await lookup is RangeOutcome.WAITS
        assert (feed.offset, feed.error, feeds.due_s) == (12, None, None)

    play(body)


@pytest.mark.parametrize(("open_s", "backoff_s"), [(STABLE_S - 1, 8 * BACKOFF_FIRST_S), (STABLE_S, BACKOFF_FIRST_S)])
def test_a_push_source_that_was_open_for_long_begins_the_backoff_again(open_s: float, backoff_s: float) -> None:
    async def body(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        feeds = feeds_of(scene, ORDERS)
        for _ in range(3):
            feeds.failed([feeds[ORDERS]], LOST)
        opened_s = loop.time()
        await asyncio.sleep(open_s)
        feeds.source_lost([ORDERS, TopicPartition("orders", 7)], LOST, opened_s)
        assert feeds[ORDERS].retry_at_s - loop.time() == pytest.approx(backoff_s, rel=0.01)

    play(body)
