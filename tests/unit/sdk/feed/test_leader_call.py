"""Tests that a leader call follows leader changes, and raises the last failure at its deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from builders.sdk.feeds import caller, lookups
from builders.sdk.scripted_broker import PORT, Refuse, Scene, play
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import NO_TOPIC_ID, TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import BACKOFF_FIRST_S, BACKOFF_MAX_S, FEW_ATTEMPTS, Deadline
from millstream.sdk.feed.leader_call import ask_leader, ask_partitions
from millstream.sdk.feed.partition_feed import READS_ON, FeedRules, FetchAt, PartitionFeed
from millstream.sdk.responses import NotLeaderError

WHERE = TopicPartition("orders", 0)
ONE, TWO = Address("broker1", PORT), Address("broker2", PORT)


def refused(code: ErrorCode, detail: str = "refused") -> MillstreamError:
    return MillstreamError(code, detail)


def led_by(leader_id: int, *, epoch: int) -> NotLeaderError:
    error = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return NotLeaderError(error, leader_id=leader_id, leader_epoch=epoch)


class Leader:
    """Returns its outcomes in order; repeats the last one."""

    def __init__(self, *outcomes: MillstreamError | str) -> None:
        self.asked: list[FetchAt] = []
        self.asked_s: list[float] = []
        self._outcomes = list(outcomes)

    async def __call__(self, fetch: FetchAt) -> str:
        self.asked.append(fetch)
        self.asked_s.append(asyncio.get_running_loop().time())
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, MillstreamError):
            raise outcome
        return outcome


def a_feed(rules: FeedRules = READS_ON) -> PartitionFeed:
    return PartitionFeed(WHERE, 7, NO_TOPIC_ID, rules)


async def ask(
    scene: Scene, leader: Callable[[FetchAt], Awaitable[str]], feed: PartitionFeed | None = None, timeout_s: float = 5.0
) -> str:
    return await ask_leader(caller(scene), feed or a_feed(), leader, Deadline(timeout_s))


def test_the_leader_is_looked_up_once_and_called_with_the_position() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader, feed = Leader("found"), a_feed()
        assert await ask(scene, leader, feed) == "found"
        assert await ask(scene, leader, feed) == "found"
        assert [(each.leader, each.position.offset) for each in leader.asked] == [(ONE, 7)] * 2
        assert lookups(scene) == 1

    play(body, nodes=2)


def test_a_hint_of_a_newer_leader_is_followed_at_once_without_a_lookup() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader = Leader(led_by(2, epoch=4), led_by(1, epoch=5), "found")
        assert await ask(scene, leader) == "found"
        assert [(each.leader, each.position.leader_epoch) for each in leader.asked] == [(ONE, -1), (TWO, 4), (ONE, 5)]
        assert len(set(leader.asked_s)) == 1, "no time passes"
        assert lookups(scene) == 1

    play(body, nodes=2)


@pytest.mark.parametrize("hint", [led_by(2, epoch=-1), led_by(9, epoch=4)], ids=["not newer", "unknown broker"])
def test_an_unusable_leader_hint_causes_a_backoff_and_a_lookup(hint: NotLeaderError) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader = Leader(hint, "found")
        assert await ask(scene, leader) == "found"
        assert leader.asked_s[1] - leader.asked_s[0] >= BACKOFF_FIRST_S
        assert lookups(scene) == 2

    play(body, nodes=2)


def test_brokers_that_name_each_other_cause_no_busy_loop() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader = Leader(*[led_by(2, epoch=4), led_by(1, epoch=4)] * 1_000)
        with pytest.raises(MillstreamError) as caught:
            await ask(scene, leader, timeout_s=30.0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(leader.asked) <= 2 * (30.0 / BACKOFF_MAX_S + 10)

    play(body, nodes=2)


def test_retries_wait_longer_each_time_until_the_deadline() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader = Leader(refused(ErrorCode.NETWORK_EXCEPTION, "first"), refused(ErrorCode.LEADER_NOT_AVAILABLE, "last"))
        start_s = scene.loop.time()
        with pytest.raises(MillstreamError) as caught:
            await ask(scene, leader)
        assert (caught.value.code, caught.value.detail) == (ErrorCode.LEADER_NOT_AVAILABLE, "last")
        assert 5.0 - 2 * BACKOFF_MAX_S <= scene.loop.time() - start_s <= 5.0
        waits = [after - before for before, after in pairwise(leader.asked_s)]
        assert waits[:6] == sorted(waits[:6])
        assert waits[5] > 16 * waits[0]

    play(body)


def test_a_timeout_near_the_deadline_does_not_hide_an_earlier_error() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        first = refused(ErrorCode.LEADER_NOT_AVAILABLE, "first")
        asked = 0

        async def slow(fetch: FetchAt) -> str:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise first
            await asyncio.sleep(4.95)
            raise refused(ErrorCode.REQUEST_TIMED_OUT)

        with pytest.raises(MillstreamError) as caught:
            await ask(scene, slow)
        assert (asked, caught.value) == (2, first)

    play(body)


def test_a_final_error_is_raised_at_once() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")
        leader = Leader(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(MillstreamError) as caught:
            await ask(scene, leader)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(leader.asked) == 1

    play(body)


@pytest.mark.parametrize(("attempts", "lookups_max"), [(1, 1), (FEW_ATTEMPTS, FEW_ATTEMPTS)])
def test_a_missing_topic_is_raised_after_as_many_lookups_as_allowed(attempts: int, lookups_max: int) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.auto_create = False
        leader = Leader("found")
        with pytest.raises(MillstreamError) as caught:
            await ask(scene, leader, a_feed(FeedRules(missing_attempts=attempts)))
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (lookups(scene), leader.asked) == (lookups_max, [])

    play(body)


@pytest.mark.parametrize("is_refused", [True, False])
def test_lookups_without_a_leader_are_bounded_by_the_backoff(is_refused: bool) -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders")[0].leader = -1
        if is_refused:
            scene.cluster.then("Metadata", *[Refuse(ErrorCode.LEADER_NOT_AVAILABLE)] * 1_000)
        leader, steps = Leader("found"), scene.loop.steps
        with pytest.raises(MillstreamError) as caught:
            await ask(scene, leader, timeout_s=60.0)
        assert (caught.value.code, leader.asked) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
        assert 60 / BACKOFF_MAX_S - 2 <= lookups(scene) <= 60 / BACKOFF_MAX_S + 10
        assert scene.loop.steps - steps <= 100 * lookups(scene)

    play(body)


def test_only_partitions_that_moved_are_requested_again_from_the_new_leader() -> None:
    async def body(scene: Scene) -> None:
        logs = scene.cluster.topic("orders", 3)
        logs[2].leader = 2
        numbers = {TopicPartition("orders", number): requests.LATEST for number in range(3)}

        async def ends() -> list[TopicPartition]:
            found = await ask_partitions(calling, numbers, requests.list_offsets, Deadline(5.0))
            assert {each.offset for each in found.values()} == {0}
            return list(found)

        calling = caller(scene)
        assert await ends() == list(numbers)
        logs[0].leader = 2
        assert await ends() == list(numbers)
        assert scene.cluster.requests("ListOffsets") == [1, 2, 1, 2, 2]
        assert lookups(scene) == 2

    play(body, nodes=2)


def test_topics_that_are_not_cached_share_one_lookup() -> None:
    async def body(scene: Scene) -> None:
        names = [f"topic-{number}" for number in range(5)]
        for name in names:
            scene.cluster.topic(name)
        numbers = {TopicPartition(name, 0): requests.BEGINNING for name in names}
        found = await ask_partitions(caller(scene), numbers, requests.list_offsets, Deadline(5.0))
        assert list(found) == list(numbers)
        assert (lookups(scene), scene.cluster.requests("ListOffsets")) == (1, [1])

    play(body)


def test_no_further_leader_is_called_after_a_permanent_partition_error() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders", 2)[1].leader = 2
        scene.cluster.then("ListOffsets", Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        numbers = {TopicPartition("orders", number): requests.LATEST for number in range(2)}
        with pytest.raises(MillstreamError, match="orders-0") as caught:
            await ask_partitions(caller(scene), numbers, requests.list_offsets, Deadline(5.0))
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert scene.cluster.requests("ListOffsets") == [1]

    play(body, nodes=2)


def test_a_partition_error_is_raised_at_the_deadline_when_others_have_succeeded() -> None:
    async def body(scene: Scene) -> None:
        scene.cluster.topic("orders", 2)[1].leader = -1
        numbers = {TopicPartition("orders", number): requests.LATEST for number in range(2)}
        with pytest.raises(MillstreamError, match="orders-1") as caught:
            await ask_partitions(caller(scene), numbers, requests.list_offsets, Deadline(5.0))
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        assert scene.cluster.requests("ListOffsets") == [1], "partition 0 has answered"

    play(body)
