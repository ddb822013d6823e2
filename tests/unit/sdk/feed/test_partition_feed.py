"""Tests the state machine of a partition feed: position, backoff, leader changes and giving up."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import TopicId
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk.connection.address import Address, PartitionLeader
from millstream.sdk.connection.retry_policy import BACKOFF_FIRST_S, BACKOFF_MAX_S, FEW_ATTEMPTS
from millstream.sdk.feed.partition_feed import (
    FeedPosition,
    FeedRules,
    FetchAt,
    FindLeader,
    GiveUp,
    LogRange,
    PartitionFeed,
    RangeOutcome,
    WaitUntil,
)

WHERE = TopicPartition("orders", 3)
TOPIC_ID = TopicId(UUID(int=7))
ONE, TWO = Address("one", 9092), Address("two", 9092)
PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
]


def refused(code: ErrorCode) -> MillstreamError:
    return MillstreamError(code, "refused")


def a_feed(offset: int = 0, **rules: Any) -> PartitionFeed:
    return PartitionFeed(WHERE, offset, TOPIC_ID, FeedRules(**rules))


def led(feed: PartitionFeed, address: Address = ONE, epoch: int = 0) -> None:
    feed.led_by(PartitionLeader(address, epoch), TOPIC_ID)


def test_a_fetch_names_the_position_and_the_leader_epoch() -> None:
    feed = a_feed(5)
    assert feed.step(0.0) == FindLeader()
    led(feed, epoch=4)
    assert feed.step(0.0) == FetchAt(ONE, FeedPosition(5, 4))
    feed.advance(8)
    assert feed.step(0.0) == FetchAt(ONE, FeedPosition(8, 4))


def test_only_a_seek_decreases_the_position() -> None:
    feed = a_feed(5)
    feed.advance(9)
    with pytest.raises(AssertionError, match="cannot go back"):
        feed.advance(8)
    feed.seek(2)
    assert feed.offset == 2


@pytest.mark.parametrize("code", PASSING)
def test_the_leader_is_looked_up_after_a_refusal_and_a_backoff(code: ErrorCode) -> None:
    feed = a_feed(5)
    led(feed, epoch=4)
    feed.failed(refused(code), 10.0)
    assert feed.step(10.0) == WaitUntil(10.0 + BACKOFF_FIRST_S)
    assert feed.step(11.0) == FindLeader()
    led(feed, TWO, 5)
    assert feed.step(11.0) == FetchAt(TWO, FeedPosition(5, 5))


def test_a_newer_leader_named_by_a_refusal_is_used_at_once() -> None:
    feed = a_feed()
    led(feed, epoch=4)
    feed.failed(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 10.0, hint=PartitionLeader(TWO, 5))
    assert feed.step(10.0) == FetchAt(TWO, FeedPosition(0, 5))


@pytest.mark.parametrize("epoch", [-1, 3, 4])
def test_a_named_leader_without_a_newer_epoch_is_ignored(epoch: int) -> None:
    feed = a_feed()
    led(feed, epoch=4)
    feed.failed(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 10.0, hint=PartitionLeader(TWO, epoch))
    assert isinstance(feed.step(10.0), WaitUntil)


def test_metadata_with_an_older_epoch_is_not_followed() -> None:
    feed = a_feed()
    led(feed, TWO, 7)
    feed.failed(refused(ErrorCode.NETWORK_EXCEPTION), 10.0)
    with pytest.raises(MillstreamError, match="lags behind") as stale:
        led(feed, ONE, 6)
    assert stale.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert feed.position.leader_epoch == 7
    feed.failed(stale.value, 11.0)
    assert feed.step(11.0) == WaitUntil(11.0 + 2 * BACKOFF_FIRST_S)
    led(feed, TWO, 7)
    assert feed.step(12.0) == FetchAt(TWO, FeedPosition(0, 7))


def test_metadata_older_than_a_named_leader_is_not_followed() -> None:
    feed = a_feed()
    led(feed, ONE, 6)
    feed.failed(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 10.0, hint=PartitionLeader(TWO, 7))
    feed.failed(refused(ErrorCode.NETWORK_EXCEPTION), 10.0)
    with pytest.raises(MillstreamError, match="LEADER_NOT_AVAILABLE"):
        led(feed, ONE, 6)


@pytest.mark.parametrize(
    ("topic_id", "epoch"),
    [(NO_TOPIC_ID, 6), (TopicId(UUID(int=8)), 0), (TOPIC_ID, -1)],
    ids=["metadata without topic ids", "recreated topic", "metadata without epochs"],
)
def test_a_lower_epoch_is_followed_if_it_cannot_be_compared(topic_id: TopicId, epoch: int) -> None:
    feed = PartitionFeed(WHERE, 0)
    known_id = NO_TOPIC_ID if topic_id == NO_TOPIC_ID else TOPIC_ID
    feed.led_by(PartitionLeader(TWO, 7), known_id)
    feed.failed(refused(ErrorCode.NETWORK_EXCEPTION), 10.0)
    feed.led_by(PartitionLeader(ONE, epoch), topic_id)
    assert feed.step(11.0) == FetchAt(ONE, FeedPosition(0, epoch))


def test_a_recreated_topic_ends_the_feed_with_the_documented_error() -> None:
    feed = a_feed(5)
    steps = 0
    now_s = 0.0
    while not isinstance(step := feed.step(now_s), GiveUp):
        if isinstance(step, WaitUntil):
            now_s = step.time_s
            continue
        steps += 1
        try:
            feed.led_by(PartitionLeader(ONE, 0), TopicId(UUID(int=8)))
        except MillstreamError as error:
            feed.failed(error, now_s)
    assert steps == FEW_ATTEMPTS
    assert step.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "was deleted and created again" in step.error.detail
    assert feed.is_missing
    assert feed.offset == 5


def test_a_missing_topic_is_retried_without_limit_by_the_rules() -> None:
    feed = a_feed(missing_attempts=None)
    for _ in range(100):
        feed.failed(refused(ErrorCode.UNKNOWN_TOPIC_ID), 0.0)
    assert isinstance(feed.step(0.0), WaitUntil)


def test_a_missing_topic_is_reported_again_after_each_further_failure() -> None:
    feed = a_feed()
    for _ in range(FEW_ATTEMPTS):
        feed.failed(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0.0)
    for _ in range(3):
        assert isinstance(feed.step(0.0), GiveUp)
        feed.retry()
        assert isinstance(feed.step(0.0), WaitUntil)
        feed.failed(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0.0)
    feed.retry()
    led(feed)
    assert not feed.is_missing


def test_damage_is_reported_after_several_attempts_without_a_decoded_record() -> None:
    feed = a_feed()
    for _ in range(FEW_ATTEMPTS - 1):
        feed.failed(refused(ErrorCode.CORRUPT_MESSAGE), 0.0)
        led(feed)
        feed.answered()
    feed.decoded()
    for _ in range(FEW_ATTEMPTS):
        assert not feed.gives_up
        led(feed)
        feed.answered()
        feed.failed(refused(ErrorCode.CORRUPT_MESSAGE), 0.0)
    assert feed.gives_up


def test_a_final_error_is_reported_at_once() -> None:
    feed = a_feed()
    led(feed)
    error = refused(ErrorCode.INVALID_REQUEST)
    feed.failed(error, 0.0)
    assert feed.step(0.0) == GiveUp(error)


def test_a_paused_feed_has_no_due_step() -> None:
    feed = a_feed()
    led(feed)
    feed.pause()
    assert isinstance(feed.step(1e9), WaitUntil)
    assert not feed.is_ready(1e9)
    feed.resume()
    assert isinstance(feed.step(0.0), FetchAt)


@pytest.mark.parametrize(
    ("rules", "offset", "outcome", "next_offset"),
    [
        ({"moves_on": True}, 2, RangeOutcome.MOVED, 10),
        ({"moves_on": False}, 2, RangeOutcome.FAILED, 2),
        ({"waits_beyond_end": True}, 25, RangeOutcome.WAITS, 25),
        ({"waits_beyond_end": False, "moves_on": True}, 25, RangeOutcome.MOVED, 20),
        ({"waits_beyond_end": False}, 25, RangeOutcome.FAILED, 25),
        ({"moves_on": True}, 15, RangeOutcome.WAITS, 15),
    ],
)
def test_an_offset_out_of_range_is_handled_by_the_feed_rules(
    rules: dict[str, bool], offset: int, outcome: RangeOutcome, next_offset: int
) -> None:
    feed = a_feed(offset, **rules)
    led(feed)
    assert feed.out_of_range(LogRange(10, 20), 5.0) is outcome
    assert feed.offset == next_offset
    step = feed.step(5.0)
    assert isinstance(step, {"WAITS": WaitUntil, "MOVED": FetchAt, "FAILED": GiveUp}[outcome.name])
    assert not isinstance(step, GiveUp) or step.error.code is ErrorCode.OFFSET_OUT_OF_RANGE


Event = Callable[[PartitionFeed, float], None]
EVENTS: dict[str, Event] = {
    "led": lambda feed, _: led(feed),
    "recreated": lambda feed, now_s: feed.failed(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), now_s),
    "advanced": lambda feed, _: (feed.advance(feed.offset + 3), feed.answered())[1],
    "empty": lambda feed, _: feed.answered(),
    "decoded": lambda feed, _: feed.decoded(),
    "damaged": lambda feed, now_s: feed.failed(refused(ErrorCode.CORRUPT_MESSAGE), now_s),
    "final": lambda feed, now_s: feed.failed(refused(ErrorCode.INVALID_REQUEST), now_s),
    "reported": lambda feed, _: feed.retry(),
    "paused": lambda feed, _: feed.pause(),
    "resumed": lambda feed, _: feed.resume(),
} | {code.name: lambda feed, now_s, code=code: feed.failed(refused(code), now_s) for code in PASSING}


@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.floats(0.0, 2.0)), max_size=60))
def test_positions_grow_and_failures_back_off_in_any_event_order(script: list[tuple[str, float]]) -> None:
    feed, now_s, failures = a_feed(), 0.0, 0
    for name, passed_s in script:
        now_s += passed_s
        before, was_failing = feed.offset, feed.error
        EVENTS[name](feed, now_s)
        assert feed.offset >= before
        step = feed.step(now_s)
        if feed.error is None:
            failures = 0
        elif feed.error is not was_failing:
            failures += 1
            wait_s = min(BACKOFF_FIRST_S * 2 ** (failures - 1), BACKOFF_MAX_S)
            assert feed.retry_at_s == pytest.approx(now_s + wait_s), "the backoff grows with consecutive failures"
            assert isinstance(step, WaitUntil | GiveUp)
            assert feed.leader is None, "the leader is looked up again"
        assert not isinstance(step, WaitUntil) or step.time_s > now_s, "a wait ends in the future"
        assert isinstance(step, FetchAt) == feed.is_ready(now_s)


@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_consecutive_failures_never_cause_a_busy_loop(failures: int, chance: float) -> None:
    feed, now_s = a_feed(missing_attempts=None), 0.0
    for number in range(min(failures, 50)):
        feed.failed(refused(PASSING[number % len(PASSING)]), now_s, chance)
        step = feed.step(now_s)
        assert isinstance(step, WaitUntil)
        assert 0.49 * BACKOFF_FIRST_S < step.time_s - now_s < 1.51 * BACKOFF_MAX_S
        now_s = step.time_s
        assert feed.step(now_s) == FindLeader()
        led(feed)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([ONE, TWO]), st.integers(0, 9)), max_size=60))
def test_the_leader_epoch_never_decreases(script: list[tuple[bool, Address, int]]) -> None:
    feed, now_s = a_feed(missing_attempts=None), 0.0
    for is_hint, address, epoch in script:
        before = feed.position.leader_epoch
        leader = PartitionLeader(address, epoch)
        if is_hint:
            feed.failed(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_s, hint=leader)
            assert feed.position.leader_epoch == max(before, epoch)
            is_newer = epoch > before
            assert isinstance(feed.step(now_s), FetchAt if is_newer and feed.retry_at_s <= now_s else WaitUntil)
        else:
            try:
                feed.led_by(leader, TOPIC_ID)
            except MillstreamError as error:
                assert epoch < before
                feed.failed(error, now_s)
                assert isinstance(feed.step(now_s), WaitUntil)
        assert feed.position.leader_epoch >= before
        now_s = max(now_s, feed.retry_at_s)
