"""Tests group consumers whose requests reach any gateway: nothing is lost, nothing is redelivered after a commit."""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

import pytest

from builders.gateways.consumer_site import AT_ONCE, GROUP, TOPIC, ConsumerSite, by_number, is_empty, numbers, play
from builders.loops import for_each
from builders.sdk.message_values import value_of
from millstream.gateway.operations.group_consumers import PARTITIONS_MAX, PollResult, poll
from millstream.gateway.operations.iterators import leave
from millstream.gateway.operations.reads import ReadLimits
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition

T = TypeVar("T")

SESSION_S = 45.0
IN_FLIGHT_S = 30.0


def code_of(caught: "pytest.ExceptionInfo[MillstreamError]") -> ErrorCode:
    return caught.value.code


def test_alternating_between_gateways_loses_and_duplicates_nothing() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(20, range(3))
        seen: list[int] = []
        for turn in range(40):
            polled = await site.poll(limits=ReadLimits(max_messages=7, wait_s=0), at=turn % 2)
            committed = await site.commit(at=(turn + 1) % 2)
            assert committed == by_number(polled.positions)
            seen += numbers(polled)
            if turn == 3:
                await site.write(5, range(3))
                await site.restart()
        assert sorted(seen) == list(range(75))
        assert await site.committed() == {0: 25, 1: 25, 2: 25}

    play(story, partitions=3)


def test_an_uncommitted_delivery_is_repeated_unchanged() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10, range(2))
        first = await site.poll(limits=ReadLimits(max_messages=6, wait_s=0))
        await site.write(10, range(2))
        for limits in (ReadLimits(max_messages=1), ReadLimits(max_messages=500), ReadLimits(max_bytes=1)):
            again = await site.poll(limits=limits, at=1)
            assert sorted(numbers(again)) == sorted(numbers(first))
            assert again.positions == first.positions
        assert await site.committed() == {}

    play(story, partitions=2)


def test_a_poll_with_auto_commit_continues_after_the_last_delivery() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10)
        seen = []
        for turn in range(4):
            seen += numbers(await site.poll(limits=ReadLimits(max_messages=3), at=turn % 2, auto_commit=True))
        assert seen == list(range(10))
        assert await site.committed() == {0: 9}
        assert is_empty(await site.poll(limits=AT_ONCE, auto_commit=True))
        assert await site.committed() == {0: 10}

    play(story)


def test_a_commit_covers_the_last_delivery_once() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10)
        await site.poll(limits=ReadLimits(max_messages=4))
        assert await site.commit(at=1) == {0: 4}
        assert await site.commit() == {}
        assert await site.committed() == {0: 4}

    play(story)


def test_a_broker_restart_between_poll_and_commit_changes_nothing() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10)
        assert numbers(await site.poll(limits=ReadLimits(max_messages=6))) == list(range(6))
        await site.restart()
        assert await site.commit(at=1) == {0: 6}
        assert numbers(await site.poll()) == list(range(6, 10))

    play(story)


def test_consumers_of_a_group_share_its_partitions() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10, range(4))
        seen: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
        for turn in range(40):
            for at, (name, found) in enumerate(seen.items()):
                polled = await site.poll(name, ReadLimits(max_messages=3, wait_s=0.5), at=(turn + at) % 2)
                await site.commit(name)
                found += [(each.partition, int(value_of(each))) for each in polled.messages]
            if turn == 20:
                await site.write(10, range(4))
        assert sorted(number for found in seen.values() for _, number in found) == list(range(80))
        late = {name: {partition for partition, number in found if number >= 40} for name, found in seen.items()}
        assert late["a"] | late["b"] == {0, 1, 2, 3}
        assert len(late["a"]) == len(late["b"]) == 2

    play(story, partitions=4)


def test_a_dead_consumers_partitions_move_after_its_session_expires() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10, range(2))
        assert len((await site.poll("a")).messages) == 20
        assert is_empty(await site.poll("b", ReadLimits(wait_s=1)))
        await asyncio.sleep(SESSION_S)
        seen: list[int] = []
        while len(seen) < 20:
            seen += numbers(await site.poll("b"))
            await site.commit("b")
        assert sorted(seen) == list(range(20))
        with pytest.raises(MillstreamError) as unknown:
            await site.commit("a")
        assert code_of(unknown) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story, partitions=2)


def test_a_leaving_consumers_partitions_move_to_others_at_once() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10)
        await site.poll("a")
        await leave(site.gateways[1], GROUP, "a", 10.0)
        assert numbers(await site.poll("b")) == list(range(10))
        with pytest.raises(MillstreamError) as unknown:
            await leave(site.gateways[0], GROUP, "a", 10.0)
        assert code_of(unknown) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_a_group_poll_wakes_on_a_message_in_any_partition() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.poll(limits=AT_ONCE)
        waiting = asyncio.create_task(site.poll(limits=ReadLimits(wait_s=60), at=1))
        await asyncio.sleep(50)
        await site.write(1, [2])
        before_s = asyncio.get_running_loop().time()
        assert numbers(await waiting) == [0]
        assert asyncio.get_running_loop().time() - before_s < 1

    play(story, partitions=3)


def test_a_long_poll_keeps_the_consumer_in_its_group() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.poll(limits=AT_ONCE)
        assert is_empty(await site.poll(limits=ReadLimits(wait_s=2 * SESSION_S)))
        assert await site.commit() == {}

    play(story)


def test_a_consumer_without_a_partition_waits_until_one_is_free() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(5)
        await site.poll("a")
        assert is_empty(await site.poll("b", ReadLimits(wait_s=3)))
        waiting = asyncio.create_task(site.poll("b", ReadLimits(wait_s=20), at=1))
        await asyncio.sleep(1)
        await site.commit("a")
        await leave(site.gateways[0], GROUP, "a", 10.0)
        await site.write(5)
        assert numbers(await waiting) == list(range(5, 10))

    play(story)


def test_a_group_that_starts_at_latest_misses_nothing_after_its_first_poll() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(5, range(2))
        assert is_empty(await site.poll(limits=AT_ONCE, start="latest"))
        await site.write(5, range(2))
        assert sorted(numbers(await site.poll(at=1, start="latest"))) == list(range(10, 20))

    play(story, partitions=2)


def test_an_expired_delivery_is_redelivered_and_can_be_committed_late() -> None:
    async def story(site: ConsumerSite) -> None:
        await site.write(10)
        first = await site.poll(limits=ReadLimits(max_messages=6))
        await asyncio.sleep(IN_FLIGHT_S + 1)
        await site.write(1)
        again = await site.poll(at=1)
        assert (again.messages, again.positions) == (first.messages, first.positions)
        await asyncio.sleep(IN_FLIGHT_S + 1)
        assert await site.commit() == {0: 6}
        assert numbers(await site.poll()) == [6, 7, 8, 9, 10]

    play(story)


def test_messages_removed_by_retention_are_skipped() -> None:
    async def story(site: ConsumerSite) -> None:
        admin, where = site.ground.member.client.admin, TopicPartition(TOPIC, 0)
        await site.write(10)
        await site.poll(limits=ReadLimits(max_messages=2))
        await site.commit()
        await admin.delete_records({where: 5})
        assert numbers(await site.poll(limits=ReadLimits(max_messages=2))) == [5, 6]
        await admin.delete_records({where: 6})
        assert numbers(await site.poll()) == [6]
        await admin.delete_records({where: 8})
        assert numbers(await site.poll()) == [8, 9]

    play(story)


def test_a_poll_delivers_from_a_bounded_number_of_partitions() -> None:
    async def story(site: ConsumerSite) -> None:
        count = 3 * PARTITIONS_MAX
        await site.write(1, range(count))
        seen: list[int] = []
        while len(seen) < count:
            polled = await site.poll(limits=AT_ONCE)
            assert 0 < len(polled.positions) <= PARTITIONS_MAX
            await site.commit()
            seen += numbers(polled)
        assert sorted(seen) == list(range(count))

    play(story, partitions=3 * PARTITIONS_MAX)


class Ledger:
    """Records the deliveries and commits of three consumers during a random sequence of events."""

    def __init__(self, site: ConsumerSite, seed: int) -> None:
        self.site = site
        self.random = Random(seed)
        self.delivered: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = {}

    async def step(self) -> None:
        name, at = self.random.choice("abc"), self.random.randrange(2)
        match self.random.randrange(20):
            case 0:
                await self.site.restart()
            case 1:
                await asyncio.sleep(self.random.choice([5, IN_FLIGHT_S, SESSION_S]))
            case 2 | 3:
                await self.site.write(self.random.randint(1, 5), range(3))
            case 4:
                await self.unless_unknown(leave(self.site.gateways[at], GROUP, name, 10.0))
            case 5 | 6 | 7 | 8:
                self.take_commit(await self.unless_unknown(self.site.commit(name, at=at)) or {})
            case _:
                await self.poll(name, at)

    async def poll(self, name: str, at: int) -> PollResult:
        before = dict(self.committed)
        auto_commit = self.random.random() < 0.3
        limits = ReadLimits(self.random.randint(1, 20), wait_s=self.random.choice([0, 0, 3]))
        polled = await self.site.poll(name, limits, at=at, auto_commit=auto_commit)
        for message in polled.messages:
            assert message.offset >= before.get(message.partition, 0), "a committed message was delivered again"
        self.take_commit(await self.site.committed())
        self.delivered |= {(message.partition, message.offset) for message in polled.messages}
        return polled

    def take_commit(self, positions: dict[int, int]) -> None:
        for partition, position in positions.items():
            assert {offset for number, offset in self.delivered if number == partition} >= set(range(position))
            assert position >= self.committed.get(partition, 0)
            self.committed[partition] = position

    async def unless_unknown(self, work: Awaitable[T]) -> T | None:
        try:
            return await work
        except MillstreamError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            return None


@for_each("seed", range(6))
def test_nothing_is_lost_or_redelivered_after_a_commit_in_any_order(seed: int) -> None:
    async def story(site: ConsumerSite) -> None:
        ledger = Ledger(site, seed)
        for _ in range(80):
            await ledger.step()
        await asyncio.sleep(2 * SESSION_S)
        while (await ledger.poll("last", 0)).messages or sum(ledger.committed.values()) < site.written:
            pass
        assert len(ledger.delivered) == site.written

    play(story, partitions=3)


def test_invalid_polls_and_commits_are_refused_with_their_error_code() -> None:
    async def story(site: ConsumerSite) -> None:
        with pytest.raises(MillstreamError, match="start"):
            await site.poll(start="middle")
        with pytest.raises(MillstreamError, match="topic"):
            await poll(site.gateways[0], [], GROUP, "a", AT_ONCE)
        with pytest.raises(MillstreamError) as unknown:
            await poll(site.gateways[0], ["missing"], GROUP, "a", AT_ONCE)
        assert code_of(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(MillstreamError) as nobody:
            await site.commit("nobody")
        assert code_of(nobody) is ErrorCode.UNKNOWN_MEMBER_ID

    play(story)
